// SPDX-License-Identifier: Apache-2.0
#include "src/plan/profiled_model.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/plan.hpp"

#include <utility>

namespace vocabpipe {

void use_profile(PlanOptions& options, Profile profile) {
    const ProfiledModel& model = profile.model;
    if (model.layers < 1 || model.heads < 1 || model.hidden % model.heads != 0 ||
        profile.output.owners().empty() || profile.input.owners().empty()) {
        throw UsageError(
            "--profile: has no layer or no vocabulary row, so nothing can be scaled; profile a "
            "model with at least one of each");
    }
    options.model = {.name = "profiled GPT", .config = profiled_config(profile)};
    options.seq_length = model.seq_length;
    options.micro_batch_sizes = {model.micro_batch_size};
    options.device.name = profile.device;
    options.profile = std::move(profile);
}

}  // namespace vocabpipe
