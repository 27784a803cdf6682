// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// Looped breadth-first: every chunk runs all its microbatches before the next one. mv chunks in
/// flight; each stage is visited once per direction, so sharded weights are gathered twice per
/// step.
[[nodiscard]] Schedule looped_bfs(const GenerateOptions& options);

}  // namespace vocabpipe
