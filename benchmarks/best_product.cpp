// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/best_product.hpp"

#include <limits>

#include "benchmarks/device_timer.hpp"
#include "kernels/cuda/engine_state.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::bench {

namespace {

constexpr int kRunsEach = 5;

}  // namespace

BestProduct::BestProduct(Context& ctx, const kernels::cuda::Product& product)
    : ctx_(&ctx),
      product_(product),
      plan_(ctx.cuda().state().blas, kernels::cuda::ProductShape::of(product, ctx.cuda())) {
    kernels::cuda::Engine& engine = ctx.cuda();
    const kernels::cuda::Engine::Queue queue{engine.stream(), engine.workspace()};
    const auto launch = [&](size_t candidate) {
        return plan_.enqueue(engine.state().blas, product_, queue, candidate) ==
               CUBLAS_STATUS_SUCCESS;
    };
    DeviceTimer timer;
    float best_ms = std::numeric_limits<float>::infinity();
    for (size_t candidate = 0; candidate < plan_.candidates(); ++candidate) {
        if (!launch(candidate)) continue;  // warm-up
        timer.start(engine.stream());
        for (int run = 0; run < kRunsEach; ++run) (void)launch(candidate);
        timer.stop(engine.stream());
        if (const float ms = timer.milliseconds(); ms < best_ms) {
            best_ms = ms;
            best_ = candidate;
        }
    }
    if (best_ms == std::numeric_limits<float>::infinity()) {
        throw DeviceError("cuBLASLt has no algorithm for a product to compare with");
    }
}

void BestProduct::run() {
    kernels::cuda::Engine& engine = ctx_->cuda();
    if (plan_.enqueue(engine.state().blas, product_, {engine.stream(), engine.workspace()},
                      best_) != CUBLAS_STATUS_SUCCESS) {
        throw DeviceError("cublasLtMatmul refuses what it has run before");
    }
}

}  // namespace vocabpipe::bench
