// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace vocabpipe {

/// How matrix products run on GPUs; CudaDeviceOptions says more. Bits depend on both.
struct ProductOptions {
    std::optional<int> left_multiprocessors;  // --left-multiprocessors; none: what NCCL may hold
    std::string choices_file;                 // --product-choices; empty: none
    std::string choices;                      // the text of --product-choices FILE; empty: none
};

}  // namespace vocabpipe
