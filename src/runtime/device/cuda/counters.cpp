// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/cuda/counters.hpp"

#include "kernels/cuda/engine.hpp"

namespace vocabpipe {

CudaCounters cuda_counters(Device& device) {
    return device.context(1, {}).cuda->counters();
}

std::string describe(const CudaCounters& c) {
    return "products: " + std::to_string(c.library_products) + " by cuBLASLt, " +
           std::to_string(c.tiled_products) + " by the tiled kernel, " +
           std::to_string(c.grouped_products) +
           " grouped by CUTLASS; attention: " + std::to_string(c.cudnn_attentions) + " by cuDNN" +
           (c.varying_attentions == 0
                ? ""
                : " (" + std::to_string(c.varying_attentions) + " not deterministic)") +
           ", " + std::to_string(c.own_attentions) +
           " by own kernels; epilogues: " + std::to_string(c.refused_epilogues) +
           " refused by cuBLASLt";
}

}  // namespace vocabpipe
