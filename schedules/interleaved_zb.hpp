// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// Interleaved zero bubble (ZB1P): interleaved 1F1B with I in place of B and W as filler. vp chunks
/// in flight on every rank, a third of the bubble of interleaved 1F1B at F = I = W.
[[nodiscard]] Schedule interleaved_zb(const GenerateOptions& options);

}  // namespace vocabpipe
