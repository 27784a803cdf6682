// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/best_product.hpp"

#include "kernels/cuda/engine_state.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::bench {

using namespace kernels::cuda;

BestProduct::BestProduct(Context& ctx, const Product& product)
    : ctx_(&ctx),
      product_(product),
      plan_(ctx.cuda().state().blas, ProductShape::of(product, ctx.cuda())) {
    const std::optional<size_t> best = fastest_candidate(ctx, plan_, product_);
    if (!best) throw DeviceError("cuBLASLt has no algorithm for a product to compare with");
    best_ = *best;
}

void BestProduct::run() {
    Engine& engine = ctx_->cuda();
    const Engine::Queue queue{engine.stream(), engine.workspace()};
    if (plan_.enqueue(engine.state().blas, product_, queue, best_) != CUBLAS_STATUS_SUCCESS) {
        throw DeviceError("cublasLtMatmul refuses what it has run before");
    }
}

}  // namespace vocabpipe::bench
