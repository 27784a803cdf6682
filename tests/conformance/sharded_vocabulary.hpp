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

/// All shards in turn, as one rank each would compute them.
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
          statistics_(device, Matrix(std::ssize(shard_rows) * problem.tokens(), kStatistics,
                                     run.exact, run.gap)) {
        int64_t first = 0;
        for (const int64_t rows : shard_rows) {
            shards_.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
            w_.emplace_back(device, rows_of(problem.w, first, rows, run.gap));
            exp_logits_.push_back(poison(rows, run.type));
            factors_.push_back(poison(2, run.exact));
            u_.push_back(poison(problem.hidden(), run.exact));
            first += rows;
        }
    }

    [[nodiscard]] ShardedOutputs outputs() {
        for (size_t k = 0; k < shards_.size(); ++k) {
            score(k);
            if (!run_.two_barriers) product(k);
        }
        ShardedOutputs out{{},
                           Matrix(0, 0, run_.exact),
                           {},
                           {{},
                            Matrix(problem_.tokens(), problem_.hidden(), run_.exact),
                            Matrix(problem_.vocab(), problem_.hidden(), run_.exact)}};
        for (size_t k = 0; k < shards_.size(); ++k) combine(k, out.result.loss);
        // Back to front: the order of the shards must not matter.
        for (size_t k = shards_.size(); k-- > 0;) {
            weight_gradient(k, out.result.dw);
            if (run_.two_barriers) product(k);
            const Workspace sums(device_,
                                 ops_.vocabulary_input_gradient_workspace_bytes(problem_.hidden()));
            ops_.vocabulary_input_gradient(ctx_, u_[k], factors_[k], w_[k], labels_, g_, shards_[k],
                                           problem_.options, sums);
        }
        out.result.dx = sum_of_parts();
        out.statistics = intact(statistics_);
        for (size_t k = 0; k < shards_.size(); ++k) {
            out.exp_logits.push_back(intact(exp_logits_[k]));
            out.factors.push_back(intact(factors_[k]));
        }
        if (run_.exact == DType::fp64) {  // combine_statistics() gives floats
            reference::token_record(ctx_, out.statistics, problem_.labels, shards_[0],
                                    problem_.options, TokenRecord::loss, out.result.loss);
        }
        return out;
    }

private:
    /// An output with a row for every token.
    [[nodiscard]] Uploaded poison(int64_t cols, DType type) const {
        return {device_, Matrix(problem_.tokens(), cols, type, run_.gap)};
    }
    static Matrix intact(const Uploaded& found) {
        Matrix result = found.download();
        EXPECT_TRUE(result.gaps_are_intact());
        return result;
    }

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
    }
    void product(size_t k) { ops_.vocabulary_input_product(ctx_, exp_logits_[k], w_[k], u_[k]); }
    void combine(size_t k, std::vector<double>& loss) {
        const auto count = static_cast<size_t>(problem_.tokens());
        const UploadedArray<float> losses(device_, std::vector<float>(count, NAN));
        ops_.combine_statistics(ctx_, statistics_, labels_, g_.span(), shards_[k],
                                static_cast<int>(k), problem_.options, factors_[k], losses);
        const std::vector<float> here = losses.download();
        if (k == 0) first_losses_ = here;
        EXPECT_EQ(std::memcmp(first_losses_.data(), here.data(), count * sizeof(float)), 0)
            << "the same bits on every rank";
        loss.assign(here.begin(), here.end());
    }
    void weight_gradient(size_t k, Matrix& dw) {
        const Workspace space(device_, ops_.vocabulary_weight_gradient_workspace_bytes(
                                           problem_.tokens(), problem_.hidden(), run_.type));
        const Uploaded part(device_,
                            Matrix(shards_[k].rows, problem_.hidden(), run_.exact, run_.gap));
        ops_.vocabulary_weight_gradient(ctx_, x_, exp_logits_[k], factors_[k], labels_, g_,
                                        shards_[k], problem_.options, part, false, space);
        const Matrix rows = intact(part);
        for (int64_t j = 0; j < rows.rows(); ++j) {
            for (int64_t i = 0; i < rows.cols(); ++i) {
                dw.set(shards_[k].first_row + j, i, rows.get(j, i));
            }
        }
    }
    [[nodiscard]] Matrix sum_of_parts() const {
        std::vector<Matrix> parts;
        for (const Uploaded& part : u_) parts.push_back(intact(part));
        Matrix dx(problem_.tokens(), problem_.hidden(), run_.exact);
        for (int64_t n = 0; n < dx.rows(); ++n) {
            for (int64_t i = 0; i < dx.cols(); ++i) {
                double sum = 0;
                for (const Matrix& part : parts) sum += part.get(n, i);
                dx.set(n, i, sum);
            }
        }
        return dx;
    }

    TestDevice& device_;
    const Operators& ops_;
    Context& ctx_;
    const Problem& problem_;
    const ShardedRun& run_;
    Uploaded x_;
    UploadedArray<int32_t> labels_;
    UploadedArray<float> g_;
    Uploaded statistics_;
    std::vector<VocabularyShard> shards_;
    std::vector<Uploaded> w_, exp_logits_, factors_, u_;
    std::vector<float> first_losses_;
};

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
        return ShardedLayer(this->device(), ctx, problem, shard_rows, run).outputs();
    }
    [[nodiscard]] ShardedOutputs run_shards(const Problem& problem,
                                            const std::vector<int64_t>& shard_rows,
                                            const ShardedRun& run = {}) const {
        return run_shards(problem, shard_rows, run, this->ctx());
    }
};

}  // namespace vocabpipe::kernels::test
