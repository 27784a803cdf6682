// SPDX-License-Identifier: Apache-2.0
// Losses that are functions of a token's records: computed between C1 and T, so that they need
// neither logits nor a pass of their own.
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/token_record.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace vocabpipe {

/// What a TokenLoss reads: N tokens of a microbatch, in the device's memory.
struct TokenLossInput {
    std::span<const int32_t> labels;  ///< (N); negative: ignored
    std::span<const float> weights;   ///< (N): Microbatch::loss_gradient, g
    std::span<const float> columns;   ///< (C, N): Microbatch::columns
    TokenRecords records;             ///< those that are made
    std::span<const float> values;    ///< (R, N): of them, in their order
    /// (shards N, k): logits of the listed tokens, shard by shard, whose sum over the shards
    /// counts; k: TokenLoss::listed(). Over the temperature and soft-capped as `layer` says.
    ConstTensor listed = {};
    kernels::LossOptions layer = {};  ///< of the output layer

    /// (N): one of `records`.
    [[nodiscard]] std::span<const float> of(TokenRecord record) const {
        return values.subspan(static_cast<size_t>(records.index_of(record)) * labels.size(),
                              labels.size());
    }
    /// (N): column c.
    [[nodiscard]] std::span<const float> column(int64_t c) const {
        return columns.subspan(static_cast<size_t>(c) * labels.size(), labels.size());
    }
};

/// What it writes; 0 for ignored labels.
struct TokenLossOutput {
    /// (N): loss_n, not weighted; the step adds up g_n loss_n.
    std::span<float> loss;
    /// (N): g_n d loss_n / d(-log p of the label); that of the cross-entropy is g.
    std::span<float> gradient;
    /// (N): g_n d loss_n / d entropy; empty unless TokenLoss::has_entropy_slope().
    std::span<float> entropy;
    /// (N, 1 + k): slopes of the step's loss by x w of the label and of the listed tokens, besides
    /// those of `gradient`; empty without a list.
    Tensor slopes = {};
};

/// The loss of a token as a function of its records and of the caller's columns. Every rank with
/// output rows calls it with the same input, and must get the same bits. It replaces the
/// cross-entropy in training only (StepWork::loss).
class TokenLoss {
public:
    virtual ~TokenLoss() = default;
    /// Records that it reads: one number each, of statistics; not the loss, which it makes.
    [[nodiscard]] virtual TokenRecords reads() const = 0;
    /// C, columns that it reads.
    [[nodiscard]] virtual int64_t columns() const { return 0; }
    /// k, tokens that a list names for every token, whose logits it reads. The columns then begin
    /// with k numbers of its own and the k ids, -1 for none. Logits and gradients of these few
    /// rows are products of single rows, in every vocabulary mode.
    [[nodiscard]] virtual int64_t listed() const { return 0; }
    /// Whether it depends on the entropy. The gradient of the entropy needs the exponentials of all
    /// logits once more, in T, before any product reads them: every vocabulary mode but
    /// one_barrier.
    [[nodiscard]] virtual bool has_entropy_slope() const { return false; }
    /// Whether evaluate() reads memory of the host; other devices then refuse it.
    [[nodiscard]] virtual bool on_host() const { return false; }
    /// Enqueues the work on the device of `ctx`.
    virtual void evaluate(Context& ctx, const TokenLossInput& in,
                          const TokenLossOutput& out) const = 0;
};

/// A TokenLoss from a function of a range of tokens, called with any number of tokens of a
/// microbatch; for ranks on hosts.
///
///     HostTokenLoss(TokenRecords{TokenRecord::logprob}, 1, [](const TokenLossInput& in,
///                                                             const TokenLossOutput& out) {
///         for (size_t n = 0; n < in.labels.size(); ++n) {
///             if (in.labels[n] < 0) continue;
///             out.loss[n] = -in.column(0)[n] * in.of(TokenRecord::logprob)[n];
///             out.gradient[n] = in.column(0)[n] * in.weights[n];
///         }
///     })
class HostTokenLoss final : public TokenLoss {
public:
    /// What it calls.
    using Function = std::function<void(const TokenLossInput&, const TokenLossOutput&)>;
    /// `function`: adds to outputs that are 0.
    HostTokenLoss(TokenRecords reads, int64_t columns, Function function,
                  bool has_entropy_slope = false)
        : reads_(reads),
          columns_(columns),
          has_entropy_slope_(has_entropy_slope),
          function_(std::move(function)) {}

    [[nodiscard]] TokenRecords reads() const override { return reads_; }
    [[nodiscard]] int64_t columns() const override { return columns_; }
    [[nodiscard]] bool has_entropy_slope() const override { return has_entropy_slope_; }
    [[nodiscard]] bool on_host() const override { return true; }
    void evaluate(Context& ctx, const TokenLossInput& in,
                  const TokenLossOutput& out) const override;

private:
    TokenRecords reads_;
    int64_t columns_;
    bool has_entropy_slope_;
    Function function_;
};

}  // namespace vocabpipe
