// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/product_plan.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::bench {

/// A product with the fastest of the algorithms that the library chooses from (the same list for
/// the same shape), each timed on these tensors: a bound for the library's own choice. The tensors
/// and `ctx` must outlive it.
class BestProduct {
public:
    /// Runs every algorithm several times on the stream of `ctx` and waits for it. DeviceError if
    /// there is no algorithm.
    BestProduct(Context& ctx, const kernels::cuda::Product& product);
    void run();

private:
    Context* ctx_;
    kernels::cuda::Product product_;
    kernels::cuda::ProductPlan plan_;
    size_t best_ = 0;
};

}  // namespace vocabpipe::bench
