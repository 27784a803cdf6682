// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// ZB-V: two stages per rank in a V, no bubble at F = I = W, the memory of 1F1B (2p chunks) on
/// every rank.
[[nodiscard]] Schedule zb_v(const GenerateOptions& options);

}  // namespace vocabpipe
