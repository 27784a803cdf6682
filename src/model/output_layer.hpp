// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/predicted_rows.hpp"
#include "src/model/sequence_output.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/token_loss.hpp"

#include <memory>
#include <vector>

namespace vocabpipe {

/// Columns of exp_logits in memory for a shard of `rows` rows. Every row begins at a multiple of 16
/// bytes, as tensor cores require, even if a vocabulary like GPT-2's 50257 makes shards of odd
/// sizes.
[[nodiscard]] constexpr int64_t exp_logits_columns(int64_t rows) {
    return (rows + 7) / 8 * 8;
}

/// Bytes that one microbatch in flight keeps on a rank with v output rows, between S and T: the
/// exp_logits, N v padded, in the run's type and, of size N only, statistics and factors; with one
/// barrier also the fp32 input gradient N h until it is reduced. `keeps_logits`:
/// StepSizes::keeps_logits; every row of exp_logits is then followed by its logits in fp32.
[[nodiscard]] ShardBytes output_shard_bytes(const kernels::Operators& operators, int64_t tokens,
                                            int64_t hidden, int64_t rows, DType dtype,
                                            bool keeps_logits = false);

/// Bytes of OutputLayer::records() on a rank that has them; `tokens`: per microbatch.
[[nodiscard]] constexpr int64_t record_bytes(const TokenRecords& made, int microbatches,
                                             int64_t tokens) {
    return made.size() * microbatches * tokens * size_of(DType::fp32);
}

/// What an output layer makes besides the cross-entropy.
struct OutputRecords {
    TokenRecordOptions options = {};  ///< default: nothing
    /// Replaces the cross-entropy in training; null: it does not.
    std::shared_ptr<const TokenLoss> loss = nullptr;
    bool hidden_sums = false;  ///< in evaluations, SequenceOutput::hidden_sums()
    /// StepSizes::predicted_tokens: the rows of X for each token in training. Default: the model's
    /// last stage has no depths.
    int predicted_tokens = 1;
    int tensor = 1;  ///< t, ranks that share the last stage: the order of the rows of X
};

/// One shard of projection, softmax and cross-entropy in row-factor form (docs/numerics.md).
class ShardedOutputLayer final : public OutputLayer, public SequenceOutput {
public:
    /// `parameters`: exactly one, the shard's rows of lm_head (or of wte when tied); `tokens`: per
    /// microbatch. `options`: of training; `records` are made in every step.
    ShardedOutputLayer(Device& device, std::span<Parameter> parameters, int64_t tokens,
                       kernels::LossOptions options, const OutputRecords& records = {});

    [[nodiscard]] bool streams() const override { return true; }
    [[nodiscard]] std::span<Parameter> parameters() override { return parameters_; }
    void begin_step(int microbatches) override;
    void evaluate_next_step(int64_t sequences) override { next_sequences_ = sequences; }
    [[nodiscard]] std::span<const double> losses() const override {
        return {loss_of(0), losses_of_step_};
    }
    [[nodiscard]] std::span<const double> depth_losses() const override {
        return {loss_of(losses_of_step_), losses_of_step_ * depths_of_step_};
    }
    [[nodiscard]] ConstTensor records() const override;
    [[nodiscard]] std::span<const float> hidden_sums() const override;
    void score(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor exp_logits,
               Tensor statistics, Bytes workspace) override;
    void input_product(Context& ctx, ConstTensor exp_logits, Tensor u) override;
    void combine_softmax(Context& ctx, const Microbatch& microbatch, ConstTensor statistics,
                         int member, Tensor factors) override;
    void rank_labels(Context& ctx, const Microbatch& microbatch, ConstTensor statistics,
                     ConstTensor exp_logits) override;
    void prepare_gradient(Context& ctx, Tensor exp_logits, Tensor factors) override;
    void finish_input_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor factors,
                               Tensor u) override;
    void weight_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                         ConstTensor exp_logits, ConstTensor factors, Bytes workspace,
                         bool accumulate) override;

private:
    [[nodiscard]] double* loss_of(size_t part) const {
        return reinterpret_cast<double*>(losses_.data()) + part;
    }
    /// The shard's columns, without the padding.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> of_shard(BasicTensor<Pointer> exp_logits) const {
        return exp_logits.column_range(0, shard_.rows);
    }

    /// The logits behind each row of exp_logits; none unless they are kept.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> logits_of(BasicTensor<Pointer> exp_logits) const {
        if (!training_.records.has(TokenRecord::label_rank) || shard_.rows == 0) return {};
        const BasicTensor<Pointer> behind =
            exp_logits.column_range(exp_logits_columns(shard_.rows), 0);
        return {behind.data, exp_logits.rows, shard_.rows,
                exp_logits.stride * size_of(exp_logits.dtype) / size_of(DType::fp32), DType::fp32};
    }

    /// The statistics that records need: without the listed logits behind them.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> of_records(BasicTensor<Pointer> statistics) const {
        return statistics.column_range(0, kernels::statistics_columns(options_.records));
    }
    /// The listed logits behind the statistics that records need.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> listed_of(BasicTensor<Pointer> statistics) const {
        return statistics.column_range(kernels::statistics_columns(options_.records),
                                       loss_ ? loss_->listed() : 0);
    }
    /// Columns of the factors that combine_statistics() makes; slopes may follow.
    [[nodiscard]] int64_t columns_of_loss() const { return loss_->has_entropy_slope() ? 4 : 2; }
    [[nodiscard]] Tensor factors_of_loss(Tensor factors) const {
        return factors.column_range(0, columns_of_loss());
    }
    /// TokenLossOutput::slopes, behind the factors; none without a list.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> slopes_of(BasicTensor<Pointer> factors) const {
        if (loss_->listed() == 0) return {};
        return factors.column_range(columns_of_loss(), 1 + loss_->listed());
    }
    /// (k, N): the ids of the lists of a microbatch; empty: no loss reads them.
    [[nodiscard]] ConstTensor listed_ids(const Microbatch& microbatch) const;

    /// Adds up x over the tokens of each sequence.
    void sum_hidden(Context& ctx, const Microbatch& microbatch, ConstTensor x);
    /// Makes the loss of every token, and the factors of its gradient.
    void apply_loss(Context& ctx, const Microbatch& microbatch, ConstTensor statistics, int member,
                    std::span<float> records, Tensor factors);
    /// Whether this rank has what is made for the caller: that with the first row of the
    /// vocabulary. Ranks of labels are added up over all ranks.
    [[nodiscard]] bool reports() const { return shard_.first_row == 0; }
    /// Where the records of a microbatch are made.
    [[nodiscard]] std::span<float> records_of(const Microbatch& microbatch) const;
    [[nodiscard]] int64_t hidden() const { return parameters_.front().weight.cols; }

    Device& device_;
    std::span<Parameter> parameters_;
    kernels::VocabularyShard shard_;
    int64_t tokens_;  ///< N
    kernels::LossOptions training_;
    kernels::LossOptions options_;  ///< of the running step
    int64_t next_sequences_ = 0;    ///< per microbatch of the next step; 0: it trains
    int64_t parts_ = 1;             ///< per microbatch; each has its own loss
    DeviceMemory losses_;           ///< doubles, per part, then those of each depth
    DeviceMemory zeros_;            ///< on the host: initial values of losses_
    size_t losses_of_step_ = 0;     ///< of the next token
    size_t depths_;                 ///< of multi-token prediction
    size_t depths_of_step_ = 0;     ///< of the running step: 0 in an evaluation
    PredictedRows rows_;            ///< of X, and the labels' order
    DeviceMemory made_;             ///< fp32 (R, N): of a microbatch, where records_ are not kept
    DeviceMemory records_;          ///< records()
    size_t microbatches_of_step_ = 0;
    std::shared_ptr<const TokenLoss> loss_;
    DeviceMemory gradients_;    ///< fp32 (2, N): what loss_ writes
    DeviceMemory allowed_;      ///< LossOptions::allowed; empty: all are
    DeviceMemory column_sum_;   ///< label smoothing: sum of the shard's rows
    DeviceMemory ones_;         ///< hidden sums: (N, kSumRows) in the run's type
    DeviceMemory hidden_sums_;  ///< hidden sums: (kSumRows, h) fp32, per part
};

}  // namespace vocabpipe
