// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// DualPipeV: two stages per rank in a V, forwards and backwards of different microbatches in
/// overlapped pairs (Pass::with_next). 2p+1 chunks in flight on every rank.
[[nodiscard]] Schedule dualpipe_v(const GenerateOptions& options);

}  // namespace vocabpipe
