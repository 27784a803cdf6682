// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Counts, since a Device was made, which code computed on its GPU. What a library refuses, our own
/// kernels compute: the same results at other speeds.
struct CudaCounters {
    int64_t library_products = 0;    ///< matrix products by cuBLASLt
    int64_t tiled_products = 0;      ///< by our tiled kernel, 20 to 40 times slower (a guess)
    int64_t grouped_products = 0;    ///< launches by CUTLASS, each for all experts of a layer
    int64_t refused_epilogues = 0;   ///< bias or GELU computed outside the product
    int64_t cudnn_attentions = 0;    ///< calls of attention, forward or backward, by cuDNN
    int64_t varying_attentions = 0;  ///< of these, gradients whose last bits may vary
    int64_t own_attentions = 0;      ///< by our own kernels
    /// All counts agree.
    bool operator==(const CudaCounters&) const = default;
};

/// The counts of a device that make_cuda_device() made.
[[nodiscard]] CudaCounters cuda_counters(Device& device);

/// "products: 5312 by cuBLASLt, 0 by the tiled kernel, 0 grouped by CUTLASS; ...", in one line.
[[nodiscard]] std::string describe(const CudaCounters& counters);

}  // namespace vocabpipe
