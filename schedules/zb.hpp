// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// ZB(k): k = `memory_limit` microbatches in flight on every rank, from p (default, the peak of
/// 1F1B) to 2p-1, which has no bubble at F = I = W; more than 2p-1 is not used. Throws UsageError
/// for fewer than p.
[[nodiscard]] Schedule zb(const GenerateOptions& options);
/// ZB-H1: ZB(p).
[[nodiscard]] Schedule zb_h1(const GenerateOptions& options);
/// ZB-H2: ZB(2p-1).
[[nodiscard]] Schedule zb_h2(const GenerateOptions& options);

}  // namespace vocabpipe
