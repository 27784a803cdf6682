// SPDX-License-Identifier: Apache-2.0
// Last part of lowering: one pipeline's programs become those of all its replicas.
#pragma once

#include "src/schedule/lower/dataflow.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/program.hpp"

#include <vector>

namespace vocabpipe::lowering {

/// `pipeline`: programs by pipeline rank, with groups of pipeline ranks. Replicas do the same in
/// the same order, so one global order serves them all: positions are spread such that replicas
/// meet in what they do together and nowhere else, and what was free of deadlock stays so.
[[nodiscard]] std::vector<Program> replicate(const std::vector<Program>& pipeline,
                                             const Dataflow& flow, Mesh mesh);

}  // namespace vocabpipe::lowering
