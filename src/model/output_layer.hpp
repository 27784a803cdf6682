// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"

#include <vector>

namespace vocabpipe {

/// Columns of a exp_logits in memory: every row begins at a multiple of 16 bytes, as tensor cores
/// ask for, also where a vocabulary like GPT-2's 50257 makes shards of any size.
[[nodiscard]] constexpr int64_t exp_logits_columns(int64_t rows) {
    return (rows + 7) / 8 * 8;
}

/// Bytes that one microbatch in flight keeps on a rank with v output rows, between S and T: the
/// exp_logits, N v padded, in the run's type and, of size N only, statistics and factors; with one
/// barrier also the fp32 input gradient N h until it is reduced.
[[nodiscard]] ShardBytes output_shard_bytes(const kernels::Operators& operators, int64_t tokens,
                                            int64_t hidden, int64_t rows, DType dtype);

/// One shard of projection, softmax and cross-entropy in row-factor form (docs/numerics.md).
class ShardedOutputLayer final : public OutputLayer {
public:
    /// `parameters`: one, the shard's rows of lm_head (or of wte when tied); `tokens`: of a
    /// microbatch. With top_two it also scores sequences.
    ShardedOutputLayer(Device& device, std::span<Parameter> parameters, int64_t tokens,
                       kernels::LossOptions options);

    [[nodiscard]] bool streams() const override { return true; }
    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void begin_step(int microbatches) override;
    void evaluate_sequences(int64_t sequences) override { sequences_ = sequences; }
    [[nodiscard]] std::span<const double> losses() const override {
        return {loss_of(0), losses_of_step_};
    }
    [[nodiscard]] std::span<const double> margins() const override {
        return {loss_of(losses_of_step_), options_.top_two ? losses_of_step_ : 0};
    }
    [[nodiscard]] std::span<const float> hidden_sums() const override;
    void score(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor exp_logits,
               Tensor statistics, Bytes workspace) override;
    void input_product(Context& ctx, ConstTensor exp_logits, Tensor u) override;
    void combine_softmax(Context& ctx, const Microbatch& microbatch, ConstTensor statistics,
                         int member, Tensor factors) override;
    void finish_input_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor factors,
                               Tensor u) override;
    void weight_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                         ConstTensor exp_logits, ConstTensor factors, Bytes workspace,
                         bool accumulate) override;

private:
    [[nodiscard]] double* loss_of(size_t part) const {
        return reinterpret_cast<double*>(losses_.data()) + part;
    }
    /// Without the columns that only pad.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> of_shard(BasicTensor<Pointer> exp_logits) const {
        return exp_logits.column_range(0, shard_.rows);
    }

    /// Adds up x over the tokens of each sequence.
    void sum_hidden(Context& ctx, const Microbatch& microbatch, ConstTensor x);
    [[nodiscard]] int64_t hidden() const { return parameters_.front().weight.cols; }

    Device& device_;
    std::span<Parameter> parameters_;
    kernels::VocabularyShard shard_;
    kernels::LossOptions training_;
    kernels::LossOptions options_;  ///< of the running step
    int64_t sequences_ = 0;         ///< of a microbatch to be evaluated; 0: training
    int64_t parts_ = 1;             ///< of a microbatch, each with a loss of its own
    DeviceMemory losses_;           ///< doubles, per part; with top_two, then margins
    DeviceMemory zeros_;            ///< as many, of the host: what they begin with
    size_t losses_of_step_ = 0;
    DeviceMemory token_losses_;  ///< (N) fp32 scratch, with top_two (2 N)
    DeviceMemory column_sum_;    ///< label smoothing: sum of the shard's rows
    DeviceMemory ones_;          ///< top_two: (N, kSumRows) in the run's type
    DeviceMemory hidden_sums_;   ///< top_two: (kSumRows, h) fp32, per part
};

}  // namespace vocabpipe
