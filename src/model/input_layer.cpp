// SPDX-License-Identifier: Apache-2.0
#include "src/model/input_layer.hpp"

#include "vocabpipe/operators.hpp"

namespace vocabpipe {

void ShardedInputLayer::embed(Context& ctx, const Microbatch& microbatch, Tensor out) {
    const Parameter& wte = parameters_.front();
    ctx.operators().embedding_gather(ctx, microbatch.tokens, wte.weight, wte.first_row, out);
}

void ShardedInputLayer::gradient(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                 bool accumulate) {
    Parameter& wte = parameters_.front();
    const bool keep = accumulate || taken_;
    taken_ = false;
    if (wte.token_gradient) {
        if (!accumulate) tokens_of_step_.clear();
        tokens_of_step_.push_back(microbatch.tokens);
    }
    ctx.operators().embedding_scatter_add(ctx, microbatch.tokens, dy, wte.first_row,
                                          wte.gradient_of_layer(), keep);
}

void ShardedInputLayer::reduce_tied(Context& ctx) {
    Parameter& wte = parameters_.front();
    if (!wte.token_gradient) return;
    ctx.operators().embedding_take(ctx, tokens_of_step_, wte.first_row, wte.token_gradient,
                                   wte.gradient);
    taken_ = true;
}

}  // namespace vocabpipe
