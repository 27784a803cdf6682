// SPDX-License-Identifier: Apache-2.0
// What ZeRO stages 2 and 3 ask of a model, for runs and plans.
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <set>
#include <vector>

namespace vocabpipe {

/// Elements of a stage whose gradients `members` ranks add up.
struct StageElements {
    int stage = 0;
    int members = 1;
    int64_t elements = 0;
};
/// Stages that ranks share with ZeRO stages 2 and 3: those most of whose gradients several ranks
/// add up. Of others, such as stages of experts that no other rank has, sharing would take more
/// memory: the passes of a stage begin all of its gradients anew, or none.
[[nodiscard]] std::set<int> shared_stages(const std::vector<StageElements>& elements);

/// StepSizes::weight_pass_reads_weights of a model: adapters, layers of its own, and experts that
/// `expert` ranks share read weights in W; the library's other layers do not.
[[nodiscard]] bool weight_pass_reads_weights(const ModelConfig& config, int expert);

}  // namespace vocabpipe
