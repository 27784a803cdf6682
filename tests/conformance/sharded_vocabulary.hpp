// SPDX-License-Identifier: Apache-2.0
// The output layer on shards of the vocabulary, as ranks compute it, on any device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/vocabulary_oracle.hpp"

namespace vocabpipe::kernels::test {

/// How it is computed.
struct ShardedRun {
    DType type = DType::fp32;   ///< of exp_logits; x and w have it already
    DType exact = DType::fp32;  ///< of statistics, factors and gradients
    /// When u = e W runs: in T, after the barrier (Algorithm 1), or in S, before it (Algorithm 2).
    bool two_barriers = false;
    int64_t gap = 0;            ///< elements between rows
    int64_t chunk_columns = 0;  ///< of logits at a time; 0: as many as the operator asks for
    int64_t piece_rows = 0;     ///< tokens that S takes at a time; 0: all
};

/// Everything that the calls over all shards leave behind.
struct ShardedOutputs {
    std::vector<Matrix> exp_logits;
    Matrix statistics;
    std::vector<Matrix> factors;
    Result result;
};

/// The shards of a layer and what ranks have of them. Call score() for all shards, then what makes
/// factors, then gradients.
class ShardedLayer {
public:
    ShardedLayer(TestDevice& device, Context& ctx, const Problem& problem,
                 const std::vector<int64_t>& shard_rows, const ShardedRun& run)
        : device_(device),
          ops_(device.operators()),
          ctx_(ctx),
          problem_(problem),
          run_(run),
          x_(device, problem.x),
          labels_(device, problem.labels),
          g_(device, problem.g),
          statistics_(device,
                      Matrix(std::ssize(shard_rows) * problem.tokens(),
                             statistics_columns(problem.options.records), run.exact, run.gap)) {
        int64_t first = 0;
        for (const int64_t rows : shard_rows) {
            shards_.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
            w_.emplace_back(device, rows_of(problem.w, first, rows, run.gap));
            exp_logits_.push_back(poison(rows, run.type));
            u_.push_back(poison(problem.hidden(), run.exact));
            first += rows;
        }
    }

    [[nodiscard]] size_t count() const { return shards_.size(); }
    [[nodiscard]] const VocabularyShard& shard(size_t k) const { return shards_[k]; }
    [[nodiscard]] const Uploaded& x() const { return x_; }
    [[nodiscard]] const Uploaded& w(size_t k) const { return w_[k]; }
    [[nodiscard]] const UploadedArray<int32_t>& labels() const { return labels_; }
    [[nodiscard]] const UploadedArray<float>& g() const { return g_; }
    [[nodiscard]] const Uploaded& statistics() const { return statistics_; }
    [[nodiscard]] const Uploaded& exp_logits(size_t k) const { return exp_logits_[k]; }
    /// An output with a row for every token.
    [[nodiscard]] Uploaded poison(int64_t cols, DType type) const {
        return {device_, Matrix(problem_.tokens(), cols, type, run_.gap)};
    }

    /// S of shard k.
    void score(size_t k) {
        const int64_t tokens = problem_.tokens();
        const int64_t asked =
            ops_.vocabulary_score_workspace_bytes(tokens, shards_[k].rows, run_.type);
        const int64_t chunk = tokens * run_.chunk_columns * size_of(DType::fp32);
        const Workspace space(device_, run_.chunk_columns > 0 ? std::min(asked, chunk) : asked);
        const int64_t piece = run_.piece_rows > 0 ? run_.piece_rows : tokens;
        ctx_.take_part_of(run_.piece_rows > 0 ? tokens : 0);
        for (int64_t begin = 0; begin < tokens; begin += piece) {
            const int64_t count = std::min(piece, tokens - begin);
            ops_.vocabulary_score(
                ctx_, x_.view().row_range(begin, count), w_[k],
                labels_.span().subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                shards_[k], problem_.options, exp_logits_[k].view().row_range(begin, count),
                statistics_.view().row_range(static_cast<int64_t>(k) * tokens + begin, count), {},
                space);
        }
        ctx_.take_part_of(0);
        if (!run_.two_barriers) product(k);
    }
    /// Shard k's addend of dX, to which operators of a loss may add.
    const Uploaded& input_gradient(size_t k, const ConstTensor& factors) {
        if (run_.two_barriers) product(k);
        const Workspace sums(device_,
                             ops_.vocabulary_input_gradient_workspace_bytes(problem_.hidden()));
        ops_.vocabulary_input_gradient(ctx_, u_[k], factors, w_[k], labels_, g_, shards_[k],
                                       problem_.options, sums);
        return u_[k];
    }
    /// Shard k's rows of dW, likewise.
    [[nodiscard]] Uploaded weight_gradient(size_t k, const ConstTensor& factors) const {
        const Workspace space(device_, ops_.vocabulary_weight_gradient_workspace_bytes(
                                           problem_.tokens(), problem_.hidden(), run_.type));
        Uploaded dw(device_, Matrix(shards_[k].rows, problem_.hidden(), run_.exact, run_.gap));
        ops_.vocabulary_weight_gradient(ctx_, x_, exp_logits_[k], factors, labels_, g_, shards_[k],
                                        problem_.options, dw, false, space);
        return dw;
    }

    static Matrix intact(const Uploaded& found) {
        Matrix result = found.download();
        EXPECT_TRUE(result.gaps_are_intact());
        return result;
    }
    /// The whole gradients of what the calls above left; rows[k] = weight_gradient(k).
    [[nodiscard]] Result result(const std::vector<double>& loss,
                                const std::vector<Uploaded>& rows) const {
        Result result{loss, Matrix(problem_.tokens(), problem_.hidden(), run_.exact),
                      Matrix(problem_.vocab(), problem_.hidden(), run_.exact)};
        std::vector<double> dx(static_cast<size_t>(problem_.tokens() * problem_.hidden()));
        for (size_t k = 0; k < count(); ++k) {
            const Matrix u = intact(u_[k]), dw = intact(rows[k]);
            for (int64_t i = 0; i < problem_.hidden(); ++i) {
                for (int64_t n = 0; n < problem_.tokens(); ++n) {
                    double& sum = dx[static_cast<size_t>(n * problem_.hidden() + i)];
                    sum += u.get(n, i);
                    result.dx.set(n, i, sum);
                }
                for (int64_t j = 0; j < shards_[k].rows; ++j) {
                    result.dw.set(shards_[k].first_row + j, i, dw.get(j, i));
                }
            }
        }
        return result;
    }

private:
    void product(size_t k) { ops_.vocabulary_input_product(ctx_, exp_logits_[k], w_[k], u_[k]); }

    TestDevice& device_;
    const Operators& ops_;
    Context& ctx_;
    const Problem& problem_;
    ShardedRun run_;
    Uploaded x_;
    UploadedArray<int32_t> labels_;
    UploadedArray<float> g_;
    Uploaded statistics_;
    std::vector<VocabularyShard> shards_;
    std::vector<Uploaded> w_, exp_logits_, u_;
};

/// All shards in turn, as one rank each would compute them, with the loss of training.
[[nodiscard]] inline ShardedOutputs run_shards_on(TestDevice& device, Context& ctx,
                                                  const Problem& problem,
                                                  const std::vector<int64_t>& shard_rows,
                                                  const ShardedRun& run) {
    ShardedLayer layer(device, ctx, problem, shard_rows, run);
    for (size_t k = 0; k < layer.count(); ++k) layer.score(k);
    std::vector<Uploaded> factors;
    std::vector<float> loss;
    for (size_t k = 0; k < layer.count(); ++k) {
        const UploadedArray<float> losses(device, std::vector<float>(problem.labels.size(), NAN));
        factors.push_back(layer.poison(2, run.exact));
        device.operators().combine_statistics(ctx, layer.statistics(), layer.labels(),
                                              layer.g().span(), layer.shard(k), static_cast<int>(k),
                                              problem.options, factors[k], losses);
        const std::vector<float> here = losses.download();
        if (k == 0) loss = here;
        EXPECT_EQ(std::memcmp(loss.data(), here.data(), loss.size() * sizeof(float)), 0)
            << "the same bits on every rank";
    }
    // Back to front: the order of the shards must not matter.
    std::vector<Uploaded> rows;
    for (size_t k = layer.count(); k-- > 0;) {
        rows.insert(rows.begin(), layer.weight_gradient(k, factors[k]));
        layer.input_gradient(k, factors[k]);
    }
    ShardedOutputs out{{},
                       layer.intact(layer.statistics()),
                       {},
                       layer.result(std::vector<double>(loss.begin(), loss.end()), rows)};
    for (size_t k = 0; k < layer.count(); ++k) {
        out.exp_logits.push_back(layer.intact(layer.exp_logits(k)));
        out.factors.push_back(layer.intact(factors[k]));
    }
    if (run.exact == DType::fp64) {  // combine_statistics() gives floats
        reference::token_record(ctx, out.statistics, problem.labels, layer.shard(0),
                                problem.options, TokenRecord::loss, out.result.loss);
    }
    return out;
}

inline void expect_within_fp32_bound(const Problem& problem, const Result& actual) {
    const Result expected = oracle(problem);
    const Bound bound = fp32_bound(problem);
    for (size_t n = 0; n < expected.loss.size(); ++n) {
        EXPECT_NEAR(actual.loss[n], expected.loss[n], bound.loss[n]);
    }
    expect_within(actual.dx, expected.dx, bound.dx);
    expect_within(actual.dw, expected.dw, bound.dw);
}

template <typename... Others>
class VocabularyTest : public OperatorTest<Others...> {
protected:
    [[nodiscard]] ShardedOutputs run_shards(const Problem& problem,
                                            const std::vector<int64_t>& shard_rows,
                                            const ShardedRun& run, Context& ctx) const {
        return run_shards_on(this->device(), ctx, problem, shard_rows, run);
    }
    [[nodiscard]] ShardedOutputs run_shards(const Problem& problem,
                                            const std::vector<int64_t>& shard_rows,
                                            const ShardedRun& run = {}) const {
        return run_shards(problem, shard_rows, run, this->ctx());
    }
};

}  // namespace vocabpipe::kernels::test
