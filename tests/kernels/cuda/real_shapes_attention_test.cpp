// SPDX-License-Identifier: Apache-2.0
// Causal attention at the sizes of training, sampled against fp64 on the host: in every sequence
// and head, `out`, log_sum_exp and dq of a query of each part of the sequence, dk and dv of a key.
//
// p is made of the exact scores, and of log_sum_exp: the exact one for a query's own results, the
// operator's, which those validate, for all queries that see a key. delta = dout out has the
// operator's `out`, as its definition says. Bounds (error_factors.hpp), eps = 2^-24:
//   log_sum_exp, and a relative error that all p of a row may have in common
//           (2 sqrt(d) |q| |k| scale + sqrt(s) + 4 |lse| + 32) eps
//   out, dv over the terms p v, p dout: rounded to bf16, added up in fp32, and the result rounded
//   dq, dk  over the terms ds k, ds q: rounded to bf16 twice (p, too); the errors of dp and delta
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/error_factors.hpp"
#include "tests/kernels/cuda/large_matrix.hpp"
#include "tests/kernels/fused_qkv.hpp"
#include "vocabpipe/attention_shape.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct AttentionCase {
    AttentionShape shape;
    int64_t samples;  ///< of queries, and of keys, of a sequence and head
};

constexpr AttentionCase kSmallAttention[] = {
    {{.sequences = 2, .seq_length = 130, .heads = 2, .head_size = 16, .kv_heads = 2}, 5},
    {{.sequences = 1, .seq_length = 150, .heads = 4, .head_size = 32, .kv_heads = 1}, 5},
};
/// GPT-2 124M and Llama 3 8B: a sample in every 64, or every 128, tokens.
constexpr AttentionCase kRealAttention[] = {
    {{.sequences = 16, .seq_length = 1024, .heads = 12, .head_size = 64, .kv_heads = 12}, 16},
    {{.sequences = 8, .seq_length = 4096, .heads = 32, .head_size = 128, .kv_heads = 8}, 32},
};

struct AttentionProblem {
    explicit AttentionProblem(const AttentionCase& of)
        : shape(of.shape),
          samples(of.samples),
          qkv(LargeMatrix::random(shape.tokens(), shape.qkv_columns(), DType::bf16, 1, -2, 2)),
          dout(LargeMatrix::random(shape.tokens(), shape.query_columns(), DType::bf16, 2, -1, 1)) {}

    [[nodiscard]] std::string name(const char* output) const {
        return std::string("attention, ") + output + ", " + std::to_string(shape.sequences) +
               " sequences of " + std::to_string(shape.seq_length) + ", " +
               std::to_string(shape.heads) + " heads of " + std::to_string(shape.head_size) + ", " +
               std::to_string(shape.kv_heads) + " of keys, bf16";
    }

    AttentionShape shape;
    int64_t samples;
    LargeMatrix qkv, dout;
};

struct AttentionOutputs {
    LargeMatrix out, log_sum_exp, dqkv;
};

AttentionOutputs run_attention(const AttentionProblem& p) {
    const AttentionShape& shape = p.shape;
    Device device;
    Context& ctx = device.context();
    const LargeOnDevice qkv(device, p.qkv), dout(device, p.dout);
    const LargeOnDevice out(device, shape.tokens(), shape.query_columns(), DType::bf16);
    const LargeOnDevice log_sum_exp(device, shape.tokens(), shape.heads, DType::fp32);
    const LargeOnDevice dqkv(device, shape.tokens(), shape.qkv_columns(), DType::bf16);
    const DeviceBytes workspace(
        static_cast<size_t>(cuda::attention_workspace_bytes(shape, DType::bf16, 1)));
    cuda::causal_attention_forward(ctx, queries_of(qkv, shape), keys_values_of(qkv, shape), shape,
                                   {}, out, log_sum_exp, workspace);
    cuda::causal_attention_backward(ctx, dout, queries_of(qkv, shape), keys_values_of(qkv, shape),
                                    out, log_sum_exp, shape, {}, queries_of(dqkv, shape),
                                    keys_values_of(dqkv, shape), workspace);
    AttentionOutputs outputs{out.download(), log_sum_exp.download(), dqkv.download()};
    EXPECT_EQ(outputs.out.count_not_finite(), 0) << p.name("out");
    EXPECT_EQ(outputs.log_sum_exp.count_not_finite(), 0) << p.name("log_sum_exp");
    EXPECT_EQ(outputs.dqkv.count_not_finite(), 0) << p.name("dqkv");
    return outputs;
}

/// One head of one sequence, (s, d) in fp64.
struct HeadColumns {
    HeadColumns(const LargeMatrix& from, const AttentionShape& shape, int64_t sequence,
                int64_t first)
        : d(shape.head_size), values(static_cast<size_t>(shape.seq_length * d)) {
        for (int64_t t = 0; t < shape.seq_length; ++t) {
            double* const row = values.data() + t * d;
            from.read(sequence * shape.seq_length + t, first, {row, static_cast<size_t>(d)});
            longest = std::max(longest, std::sqrt(product(row, row, d)));
        }
    }
    static double product(const double* a, const double* b, int64_t count) {
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
        return sum;
    }
    [[nodiscard]] const double* row(int64_t t) const {
        return values.data() + t * d;
    }

    int64_t d;
    std::vector<double> values;
    double longest = 0;  ///< of the rows' lengths
};

/// sum of factor * row, of its squares, and of the terms' own errors.
struct SumOfRows {
    explicit SumOfRows(int64_t d) : sum(static_cast<size_t>(d)), squares(sum), errors(sum) {}
    void add(double factor, double factor_error, const double* row) {
#pragma omp simd
        for (size_t i = 0; i < sum.size(); ++i) {
            const double term = factor * row[i];
            sum[i] += term;
            squares[i] += term * term;
            errors[i] += factor_error * std::abs(row[i]);
        }
        ++terms;
    }
    /// `roundings` of every term to bf16, and one of the result.
    [[nodiscard]] double bound(size_t i, int roundings) const {
        const double each = std::sqrt(roundings) * kRoundedTerms + accumulation(terms);
        const double error = each * std::sqrt(squares[i]) + errors[i];
        return error + kEps16 * 1.01 * (std::abs(sum[i]) + error) + 1e-9;
    }

    std::vector<double> sum, squares, errors;
    int64_t terms = 0;
};

struct AttentionErrors {
    explicit AttentionErrors(const AttentionProblem& p)
        : out(p.name("out")),
          log_sum_exp(p.name("log_sum_exp")),
          dq(p.name("dq")),
          dk(p.name("dk")),
          dv(p.name("dv")) {}
    void add(const AttentionErrors& other) {
        out.add(other.out);
        log_sum_exp.add(other.log_sum_exp);
        dq.add(other.dq);
        dk.add(other.dk);
        dv.add(other.dv);
    }
    ErrorFactors out, log_sum_exp, dq, dk, dv;
};

/// The query heads of one sequence that share keys.
class KeyHead {
public:
    KeyHead(const AttentionProblem& p, const AttentionOutputs& outputs, int64_t sequence,
            int64_t kv_head, AttentionErrors& errors)
        : p_(p),
          outputs_(outputs),
          errors_(errors),
          sequence_(sequence),
          kv_head_(kv_head),
          k_col_(p.shape.query_columns() + kv_head * p.shape.head_size),
          v_col_(k_col_ + p.shape.key_columns()),
          k_(p.qkv, p.shape, sequence, k_col_),
          v_(p.qkv, p.shape, sequence, v_col_) {}

    void check() {
        const AttentionShape& shape = p_.shape;
        const int64_t sharing = shape.heads / shape.kv_heads;
        const auto seed = static_cast<uint64_t>(sequence_ * shape.kv_heads + kv_head_);
        const auto keys = sample_of_each_part(shape.seq_length, p_.samples, 2 * seed);
        const auto queries = sample_of_each_part(shape.seq_length, p_.samples, 2 * seed + 1);
        std::vector<SumOfRows> dk(keys.size(), SumOfRows(shape.head_size)), dv(dk);
        for (int64_t head = kv_head_ * sharing; head < (kv_head_ + 1) * sharing; ++head) {
            const Query query(*this, head);
            for (const int64_t i : queries) check_query(query, i);
            for (size_t at = 0; at < keys.size(); ++at) {
                for (int64_t i = keys[at]; i < shape.seq_length; ++i) {
                    add_query(query, i, keys[at], dk[at], dv[at]);
                }
            }
        }
        for (size_t at = 0; at < keys.size(); ++at) {
            compare(keys[at], k_col_, outputs_.dqkv, dk[at], 2, errors_.dk);
            compare(keys[at], v_col_, outputs_.dqkv, dv[at], 1, errors_.dv);
        }
    }

private:
    /// One of the query heads.
    struct Query {
        Query(const KeyHead& of, int64_t head_)
            : head(head_),
              col(head * of.p_.shape.head_size),
              q(of.p_.qkv, of.p_.shape, of.sequence_, col),
              dout(of.p_.dout, of.p_.shape, of.sequence_, col),
              out(of.outputs_.out, of.p_.shape, of.sequence_, col) {
            for (int64_t i = 0; i < of.p_.shape.seq_length; ++i) {
                delta.push_back(HeadColumns::product(dout.row(i), out.row(i), out.d));
            }
        }
        int64_t head, col;
        HeadColumns q, dout, out;
        std::vector<double> delta;
    };

    [[nodiscard]] int64_t d() const { return p_.shape.head_size; }
    [[nodiscard]] int64_t row(int64_t t) const { return sequence_ * p_.shape.seq_length + t; }
    [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(d())); }
    [[nodiscard]] double score(const Query& query, int64_t i, int64_t j) const {
        return scale() * HeadColumns::product(query.q.row(i), k_.row(j), d());
    }
    [[nodiscard]] double p_error(const Query& query, double log_sum_exp) const {
        return 2 * dot_error(d()) * query.q.longest * k_.longest * scale() +
               (std::sqrt(static_cast<double>(p_.shape.seq_length)) + 4 * std::abs(log_sum_exp) +
                32) *
                   kEps32;
    }
    struct ScoreGradient {
        double value, error;
    };
    [[nodiscard]] ScoreGradient score_gradient(const Query& query, int64_t i, int64_t j, double p,
                                               double relative) const {
        const double dp = HeadColumns::product(query.dout.row(i), v_.row(j), d());
        const double difference = dp - query.delta[static_cast<size_t>(i)];
        const double lengths = query.dout.longest * (v_.longest + query.out.longest);
        return {p * difference * scale(),
                p * scale() * (std::abs(difference) * relative + 2 * dot_error(d()) * lengths)};
    }

    void check_query(const Query& query, int64_t i) {
        std::vector<double> p;
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
            p.push_back(std::exp(score(query, i, j)));  // scores are small
            sum += p.back();
        }
        const double log_sum_exp = std::log(sum);
        const double relative = p_error(query, log_sum_exp);
        errors_.log_sum_exp.add(row(i), query.head, outputs_.log_sum_exp.get(row(i), query.head),
                                log_sum_exp, relative);
        SumOfRows out(d()), dq(d());
        for (int64_t j = 0; j <= i; ++j) {
            const double probability = p[static_cast<size_t>(j)] / sum;
            out.add(probability, probability * relative, v_.row(j));
            const ScoreGradient ds = score_gradient(query, i, j, probability, relative);
            dq.add(ds.value, ds.error, k_.row(j));
        }
        compare(i, query.col, outputs_.out, out, 1, errors_.out);
        compare(i, query.col, outputs_.dqkv, dq, 2, errors_.dq);
    }

    /// Query i's addend of the gradients of key j.
    void add_query(const Query& query, int64_t i, int64_t j, SumOfRows& dk, SumOfRows& dv) const {
        const double log_sum_exp = outputs_.log_sum_exp.get(row(i), query.head);
        const double p = std::exp(score(query, i, j) - log_sum_exp);
        const double relative = 2 * p_error(query, log_sum_exp);
        dv.add(p, p * relative, query.dout.row(i));
        const ScoreGradient ds = score_gradient(query, i, j, p, relative);
        dk.add(ds.value, ds.error, query.q.row(i));
    }

    void compare(int64_t t, int64_t col, const LargeMatrix& actual, const SumOfRows& exact,
                 int roundings, ErrorFactors& errors) const {
        for (size_t c = 0; c < exact.sum.size(); ++c) {
            const int64_t at = col + static_cast<int64_t>(c);
            errors.add(row(t), at, actual.get(row(t), at), exact.sum[c], exact.bound(c, roundings));
        }
    }

    const AttentionProblem& p_;
    const AttentionOutputs& outputs_;
    AttentionErrors& errors_;
    int64_t sequence_, kv_head_, k_col_, v_col_;
    HeadColumns k_, v_;
};

void expect_attention(const AttentionProblem& p, const AttentionOutputs& outputs) {
    AttentionErrors errors(p);
#pragma omp parallel for num_threads(host_threads()) schedule(dynamic) collapse(2)
    for (int64_t sequence = 0; sequence < p.shape.sequences; ++sequence) {
        for (int64_t kv_head = 0; kv_head < p.shape.kv_heads; ++kv_head) {
            AttentionErrors here(p);
            KeyHead(p, outputs, sequence, kv_head, here).check();
#pragma omp critical(attention_errors)
            errors.add(here);
        }
    }
    errors.out.expect_within_bounds();
    errors.log_sum_exp.expect_within_bounds();
    errors.dq.expect_within_bounds();
    errors.dk.expect_within_bounds();
    errors.dv.expect_within_bounds();
}

class RealShapesAttention : public OnDeviceWithParam<int> {};

TEST_P(RealShapesAttention, AgreesWithSampledQueriesAndKeysInFp64) {
    const AttentionProblem problem(kOnStandIn ? kSmallAttention[GetParam()]
                                              : kRealAttention[GetParam()]);
    expect_attention(problem, run_attention(problem));
}

TEST_P(RealShapesAttention, AWrongElementOfAnyOutputIsFound) {
    const AttentionProblem problem(kSmallAttention[GetParam()]);
    AttentionOutputs outputs = run_attention(problem);
    EXPECT_EQ(failures_of([&] { expect_attention(problem, outputs); }), "");
    const int64_t last = problem.shape.tokens() - 1;  // always among the samples
    const auto expect_found = [&](LargeMatrix& output, int64_t col, double by, const char* name) {
        const double right = output.get(last, col);
        output.set(last, col, right + by);
        EXPECT_THAT(failures_of([&] { expect_attention(problem, outputs); }),
                    testing::AllOf(testing::HasSubstr(std::string("attention, ") + name),
                                   testing::HasSubstr("row " + std::to_string(last)),
                                   testing::HasSubstr("missed its bound")));
        output.set(last, col, right);
    };
    const int64_t k = problem.shape.query_columns(), v = k + problem.shape.key_columns();
    expect_found(outputs.out, 1, 0.05, "out");
    expect_found(outputs.log_sum_exp, 0, 1e-3, "log_sum_exp");
    expect_found(outputs.dqkv, 1, 0.05, "dq");
    expect_found(outputs.dqkv, k + 1, 0.05, "dk");
    expect_found(outputs.dqkv, v + 1, 0.05, "dv");
}

INSTANTIATE_TEST_SUITE_P(Models, RealShapesAttention, testing::Values(0, 1), [](const auto& info) {
    return info.param == 0 ? "heads_of_64" : "grouped";
});

}  // namespace
}  // namespace vocabpipe::kernels::test
