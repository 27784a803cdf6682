// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// ZB(k): at most k = `memory_limit` microbatches in flight on every rank, p (default, the peak of
/// 1F1B) or more; the warm-up is made for the costs. At F = I = W it has no bubble from 2p-1 on and
/// holds no more. Throws UsageError for fewer than p.
[[nodiscard]] Schedule zb(const GenerateOptions& options);
/// ZB-H1: ZB(p).
[[nodiscard]] Schedule zb_h1(const GenerateOptions& options);
/// ZB-H2: ZB(2p).
[[nodiscard]] Schedule zb_h2(const GenerateOptions& options);

}  // namespace vocabpipe
