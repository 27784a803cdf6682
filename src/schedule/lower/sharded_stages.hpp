// SPDX-License-Identifier: Apache-2.0
// Stages whose weights and gradients ranks share between the passes (ZeRO stages 2 and 3;
// Rajbhandari et al., SC 2020; FSDP, Zhao et al., VLDB 2023).
#pragma once

#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// Gathers the weights of stages before the passes that read them, and adds up their gradients
/// after the passes that write them. Call after all passes have their operands. Returns by rank the
/// nodes of the sums.
[[nodiscard]] std::vector<std::vector<uint32_t>> add_sharded_stages(StepGraph& step);

}  // namespace vocabpipe::lowering
