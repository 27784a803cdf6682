// SPDX-License-Identifier: Apache-2.0
#include "src/model/shared_stages.hpp"

#include <map>

namespace vocabpipe {

std::set<int> shared_stages(const std::vector<StageElements>& elements) {
    std::map<int, int64_t>
        more_shared;  // by stage: elements that several ranks add up, less others
    for (const StageElements& part : elements) {
        more_shared[part.stage] += part.members > 1 ? part.elements : -part.elements;
    }
    std::set<int> stages;
    for (const auto& [stage, more] : more_shared) {
        if (more > 0) stages.insert(stage);
    }
    return stages;
}

bool weight_pass_reads_weights(const ModelConfig& config, int expert) {
    return config.has_own_layers() || config.model_forward || config.lora.rank > 0 || expert > 1;
}

}  // namespace vocabpipe
