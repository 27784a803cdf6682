// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace vocabpipe {

/// How matrix products and attention run on GPUs; CudaDeviceOptions says more. Bits depend on all.
struct GpuOptions {
    std::optional<int> left_multiprocessors;  // --left-multiprocessors; none: what NCCL may hold
    std::string product_choices_file;         // --product-choices; empty: none
    std::string product_choices;              // the text of --product-choices FILE; empty: none
    bool nondeterministic_attention = false;  // --nondeterministic-attention
};

}  // namespace vocabpipe
