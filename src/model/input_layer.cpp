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
    ctx.operators().embedding_scatter_add(ctx, microbatch.tokens, dy, wte.first_row, wte.gradient,
                                          accumulate);
}

}  // namespace vocabpipe
