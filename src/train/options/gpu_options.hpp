// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace vocabpipe {

/// Matrix products and attention on GPUs; see CudaDeviceOptions. Bits depend on all of these.
struct GpuOptions {
    std::optional<int> left_multiprocessors;  // --left-multiprocessors; none: what NCCL may hold
    std::string product_choices_file;         // --product-choices; empty: none
    std::string product_choices;              // the text of --product-choices FILE; empty: none
    bool nondeterministic_attention = false;  // --nondeterministic-attention
};

}  // namespace vocabpipe
