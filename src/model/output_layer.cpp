// SPDX-License-Identifier: Apache-2.0
#include "src/model/output_layer.hpp"

#include "kernels/host/vocabulary.hpp"

namespace vocabpipe {

namespace op = kernels::host;

ShardBytes output_shard_bytes(int64_t tokens, int64_t hidden, int64_t rows, DType dtype) {
    if (rows == 0) return {};
    return {.numerator = tokens * rows * size_of(dtype),
            .score_workspace = op::vocabulary_score_workspace_bytes(tokens, rows, dtype),
            .weight_gradient_workspace =
                op::vocabulary_weight_gradient_workspace_bytes(tokens, hidden, dtype)};
}

ShardedOutputLayer::ShardedOutputLayer(std::span<Parameter> parameters,
                                       kernels::LossOptions options)
    : parameters_(parameters),
      shard_{parameters.front().first_row, parameters.front().weight.rows,
             parameters.front().logical_rows},
      options_(options) {
    if (options_.label_smoothing > 0) {
        column_sum_.resize(static_cast<size_t>(
            op::vocabulary_input_gradient_workspace_bytes(parameters.front().weight.cols)));
    }
}

void ShardedOutputLayer::score(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                               Tensor numerator, Tensor statistics, Bytes workspace) {
    op::vocabulary_score(ctx, x, parameters_.front().weight, microbatch.labels, shard_, options_,
                         numerator, statistics, workspace);
}

void ShardedOutputLayer::input_product(Context& ctx, ConstTensor numerator, Tensor u) {
    op::vocabulary_input_product(ctx, numerator, parameters_.front().weight, u);
}

void ShardedOutputLayer::combine(Context& ctx, const Microbatch& microbatch, ConstTensor statistics,
                                 int member, Tensor factors) {
    token_losses_.resize(static_cast<size_t>(microbatch.size()));
    op::combine_statistics(ctx, statistics, microbatch.labels, microbatch.loss_gradient, shard_,
                           member, options_, factors, token_losses_);
    double loss = 0;
    for (size_t n = 0; n < token_losses_.size(); ++n) {
        loss += static_cast<double>(token_losses_[n]) *
                static_cast<double>(microbatch.loss_gradient[n]);
    }
    losses_[static_cast<size_t>(microbatch.index)] = loss;
}

void ShardedOutputLayer::finish_input_gradient(Context& ctx, const Microbatch& microbatch,
                                               ConstTensor factors, Tensor u) {
    op::vocabulary_input_gradient(ctx, u, factors, parameters_.front().weight, microbatch.labels,
                                  microbatch.loss_gradient, shard_, options_, column_sum_);
}

void ShardedOutputLayer::weight_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                         ConstTensor numerator, ConstTensor factors,
                                         Bytes workspace, bool overwrite) {
    op::vocabulary_weight_gradient(ctx, x, numerator, factors, microbatch.labels,
                                   microbatch.loss_gradient, shard_, options_,
                                   parameters_.front().gradient, !overwrite, workspace);
}

}  // namespace vocabpipe
