// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"

#include <cstdint>

namespace vocabpipe {

/// StepSizes::shorter for sequences of `seq_length` instead of `longest` tokens: every size is that
/// share, rounded up. Nothing that lives from pass to pass grows faster than the tokens.
[[nodiscard]] LengthSizes length_sizes(const StepSizes& sizes, int64_t seq_length, int64_t longest);

}  // namespace vocabpipe
