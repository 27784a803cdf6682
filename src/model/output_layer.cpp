// SPDX-License-Identifier: Apache-2.0
#include "src/model/output_layer.hpp"

#include <cstring>

namespace vocabpipe {

ShardBytes output_shard_bytes(const kernels::Operators& operators, int64_t tokens, int64_t hidden,
                              int64_t rows, DType dtype) {
    if (rows == 0) return {};
    return {.exp_logits = tokens * exp_logits_columns(rows) * size_of(dtype),
            .score_workspace = operators.vocabulary_score_workspace_bytes(tokens, rows, dtype),
            .weight_gradient_workspace =
                operators.vocabulary_weight_gradient_workspace_bytes(tokens, hidden, dtype)};
}

ShardedOutputLayer::ShardedOutputLayer(Device& device, std::span<Parameter> parameters,
                                       int64_t tokens, kernels::LossOptions options)
    : device_(device),
      parameters_(parameters),
      shard_{parameters.front().first_row, parameters.front().weight.rows,
             parameters.front().logical_rows},
      training_(options),
      options_(options),
      token_losses_(device.allocate(static_cast<uint64_t>(tokens) * sizeof(float),
                                    "the losses of a microbatch's tokens")) {
    if (options_.label_smoothing > 0) {
        column_sum_ = device.allocate(
            static_cast<uint64_t>(device.operators().vocabulary_input_gradient_workspace_bytes(
                parameters.front().weight.cols)),
            "the sum of the output shard's rows");
    }
}

void ShardedOutputLayer::begin_step(int microbatches) {
    options_ =
        sequences_ > 0 ? kernels::LossOptions{.logit_softcap = training_.logit_softcap} : training_;
    parts_ = sequences_ > 0 ? sequences_ : 1;
    losses_of_step_ = static_cast<size_t>(microbatches * parts_);
    const uint64_t bytes = losses_of_step_ * sizeof(double);
    if (losses_.size() < bytes) {
        losses_ = device_.allocate(bytes, "the losses of a step");
        zeros_ = device_.allocate_staging(bytes);
        std::memset(zeros_.data(), 0, bytes);
    }
    // Before the passes that follow on the compute lane, without waiting for the device.
    device_.enqueue_upload(zeros_.bytes().first(bytes), losses_.data());
}

void ShardedOutputLayer::score(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                               Tensor exp_logits, Tensor statistics, Bytes workspace) {
    ctx.operators().vocabulary_score(ctx, x, parameters_.front().weight, microbatch.labels, shard_,
                                     options_, of_shard(exp_logits), statistics, workspace);
}

void ShardedOutputLayer::input_product(Context& ctx, ConstTensor exp_logits, Tensor u) {
    ctx.operators().vocabulary_input_product(ctx, of_shard(exp_logits), parameters_.front().weight,
                                             u);
}

void ShardedOutputLayer::combine_softmax(Context& ctx, const Microbatch& microbatch,
                                         ConstTensor statistics, int member, Tensor factors) {
    const std::span<float> losses(reinterpret_cast<float*>(token_losses_.data()),
                                  static_cast<size_t>(microbatch.size()));
    const kernels::Operators& op = ctx.operators();
    op.combine_statistics(ctx, statistics, microbatch.labels, microbatch.loss_gradient, shard_,
                          member, options_, factors, losses);
    const auto tokens = static_cast<size_t>(microbatch.size() / parts_);
    for (int64_t part = 0; part < parts_; ++part) {
        const size_t first = static_cast<size_t>(part) * tokens;
        op.weighted_sum(ctx, losses.subspan(first, tokens),
                        microbatch.loss_gradient.subspan(first, tokens),
                        loss_of(static_cast<size_t>(microbatch.index * parts_ + part)));
    }
}

void ShardedOutputLayer::finish_input_gradient(Context& ctx, const Microbatch& microbatch,
                                               ConstTensor factors, Tensor u) {
    ctx.operators().vocabulary_input_gradient(ctx, u, factors, parameters_.front().weight,
                                              microbatch.labels, microbatch.loss_gradient, shard_,
                                              options_, column_sum_.bytes());
}

void ShardedOutputLayer::weight_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                         ConstTensor exp_logits, ConstTensor factors,
                                         Bytes workspace, bool overwrite) {
    ctx.operators().vocabulary_weight_gradient(
        ctx, x, of_shard(exp_logits), factors, microbatch.labels, microbatch.loss_gradient, shard_,
        options_, parameters_.front().gradient, !overwrite, workspace);
}

}  // namespace vocabpipe
