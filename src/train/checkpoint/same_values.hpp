// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/tensor_folder.hpp"

#include <cstdint>
#include <functional>
#include <optional>

namespace vocabpipe {

/// The first of the elements from `first` to before `last` whose value differs between two tensors
/// of F32, BF16 or F16, which may be of different types; NaNs are equal. Reads in pieces.
/// `poll`: called between pieces; may throw. Empty: nothing.
[[nodiscard]] std::optional<int64_t> first_difference(const FoundTensor& a, const FoundTensor& b,
                                                      int64_t first, int64_t last,
                                                      const std::function<void()>& poll);

}  // namespace vocabpipe
