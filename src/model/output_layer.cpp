// SPDX-License-Identifier: Apache-2.0
#include "src/model/output_layer.hpp"

#include "src/model/blocks/row_pieces.hpp"

#include <cstring>
#include <utility>

namespace vocabpipe {

static_assert(StepSizes::kStatistics == kernels::kStatistics);  // buffers as lowering sizes them

namespace {

std::vector<std::byte> ones(int64_t count, DType type) {
    std::vector<std::byte> bytes(static_cast<size_t>(count * size_of(type)));
    for (int64_t i = 0; i < count; ++i) {
        const uint16_t narrow = 0x3f80;  // 1 in bf16
        const float wide = 1;
        if (type == DType::bf16) {
            std::memcpy(bytes.data() + i * 2, &narrow, 2);
        } else {
            std::memcpy(bytes.data() + i * 4, &wide, 4);
        }
    }
    return bytes;
}

}  // namespace

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
      token_losses_(
          device.allocate(static_cast<uint64_t>(tokens * (options.top_two ? 2 : 1)) * sizeof(float),
                          "the losses of a microbatch's tokens")) {
    if (options_.label_smoothing > 0) {
        column_sum_ = device.allocate(
            static_cast<uint64_t>(device.operators().vocabulary_input_gradient_workspace_bytes(
                parameters.front().weight.cols)),
            "the sum of the output shard's rows");
    }
    if (options_.top_two && shard_.first_row == 0) {
        const std::vector<std::byte> values =
            ones(tokens * kSumRows, parameters.front().weight.dtype);
        ones_ = device.allocate(values.size(), "what adds up hidden states");
        device.upload(values, ones_.data());
    }
}

void ShardedOutputLayer::begin_step(int microbatches) {
    const int64_t sequences = std::exchange(next_sequences_, 0);
    options_ = training_;
    if (sequences > 0) {
        options_ = {.logit_softcap = training_.logit_softcap, .top_two = training_.top_two};
    }
    parts_ = sequences > 0 ? sequences : 1;
    losses_of_step_ = static_cast<size_t>(microbatches * parts_);
    const uint64_t bytes = losses_of_step_ * (options_.top_two ? 2 : 1) * sizeof(double);
    if (losses_.size() < bytes) {
        losses_ = device_.allocate(bytes, "the losses of a step");
        zeros_ = device_.allocate_staging(bytes);
        std::memset(zeros_.data(), 0, bytes);
    }
    // Before the passes that follow on the compute lane, without waiting for the device.
    device_.enqueue_upload(zeros_.bytes().first(bytes), losses_.data());
    const uint64_t sums =
        losses_of_step_ * static_cast<uint64_t>(kSumRows * hidden()) * sizeof(float);
    if (!ones_.bytes().empty() && hidden_sums_.size() < sums) {
        hidden_sums_ = device_.allocate(sums, "the hidden states of a step's sequences");
    }
}

std::span<const float> ShardedOutputLayer::hidden_sums() const {
    if (ones_.bytes().empty()) return {};
    return {reinterpret_cast<const float*>(hidden_sums_.data()),
            losses_of_step_ * static_cast<size_t>(kSumRows * hidden())};
}

void ShardedOutputLayer::sum_hidden(Context& ctx, const Microbatch& microbatch, ConstTensor x) {
    const int64_t tokens = microbatch.size() / parts_;
    for (int64_t part = 0; part < parts_; ++part) {
        const ConstTensor all_ones(ones_.data(), tokens, kSumRows, x.dtype);
        const Tensor sum(hidden_sums_.data() + (microbatch.index * parts_ + part) * kSumRows *
                                                   hidden() * size_of(DType::fp32),
                         kSumRows, hidden(), DType::fp32);
        ctx.operators().linear_backward_weight(ctx, all_ones, x.row_range(part * tokens, tokens),
                                               sum, {}, false);
    }
}

void ShardedOutputLayer::score(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                               Tensor exp_logits, Tensor statistics, Bytes workspace) {
    RowPieces::of_input(ctx, x.rows).each([&](RowRange rows) {
        const std::span<const int32_t> labels =
            rows.end < 0 ? microbatch.labels
                         : microbatch.labels.subspan(static_cast<size_t>(rows.first),
                                                     static_cast<size_t>(rows.size()));
        ctx.operators().vocabulary_score(ctx, rows_of(x, rows), parameters_.front().weight, labels,
                                         shard_, options_, rows_of(of_shard(exp_logits), rows),
                                         rows_of(statistics, rows), workspace);
    });
    if (!ones_.bytes().empty()) sum_hidden(ctx, microbatch, x);
}

void ShardedOutputLayer::input_product(Context& ctx, ConstTensor exp_logits, Tensor u) {
    ctx.operators().vocabulary_input_product(ctx, of_shard(exp_logits), parameters_.front().weight,
                                             u);
}

void ShardedOutputLayer::combine_softmax(Context& ctx, const Microbatch& microbatch,
                                         ConstTensor statistics, int member, Tensor factors) {
    const std::span<float> losses(
        reinterpret_cast<float*>(token_losses_.data()),
        static_cast<size_t>(microbatch.size() * (options_.top_two ? 2 : 1)));
    const kernels::Operators& op = ctx.operators();
    op.combine_statistics(ctx, statistics, microbatch.labels, microbatch.loss_gradient, shard_,
                          member, options_, factors, losses);
    const auto tokens = static_cast<size_t>(microbatch.size() / parts_);
    for (int64_t part = 0; part < parts_; ++part) {
        const size_t first = static_cast<size_t>(part) * tokens;
        const std::span<const float> weights = microbatch.loss_gradient.subspan(first, tokens);
        const auto at = static_cast<size_t>(microbatch.index * parts_ + part);
        op.weighted_sum(ctx, losses.subspan(first, tokens), weights, loss_of(at));
        if (!options_.top_two) continue;
        const auto margins = losses.subspan(static_cast<size_t>(microbatch.size()));
        op.weighted_sum(ctx, margins.subspan(first, tokens), weights,
                        loss_of(losses_of_step_ + at));
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
                                         Bytes workspace, bool accumulate) {
    if (!parameters_.front().gradient) return;
    ctx.operators().vocabulary_weight_gradient(
        ctx, x, of_shard(exp_logits), factors, microbatch.labels, microbatch.loss_gradient, shard_,
        options_, parameters_.front().gradient, accumulate, workspace);
}

}  // namespace vocabpipe
