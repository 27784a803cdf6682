// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/tensor_folder.hpp"

#include <cstdint>
#include <functional>
#include <optional>

namespace vocabpipe {

/// The first index in [first, last) at which two tensors of F32, BF16 or F16 differ in value. Their
/// types may differ; NaNs are equal. Reads in pieces. `poll` is called between pieces and may
/// throw; it may be empty.
[[nodiscard]] std::optional<int64_t> first_difference(const FoundTensor& a, const FoundTensor& b,
                                                      int64_t first, int64_t last,
                                                      const std::function<void()>& poll);

}  // namespace vocabpipe
