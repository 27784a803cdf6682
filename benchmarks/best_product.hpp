// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/product_plan.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::bench {

/// A product with the fastest of the algorithms from which the library takes its own (the same
/// list for the same shape), each timed on the tensors themselves: what the library can do, for the
/// ratio of what we do to it. The tensors and `ctx` must outlive it.
class BestProduct {
public:
    /// Runs every algorithm some times on the stream of `ctx` and waits for it. Throws DeviceError
    /// if there is none.
    BestProduct(Context& ctx, const kernels::cuda::Product& product);
    void run();

private:
    Context* ctx_;
    kernels::cuda::Product product_;
    kernels::cuda::ProductPlan plan_;
    size_t best_ = 0;
};

}  // namespace vocabpipe::bench
