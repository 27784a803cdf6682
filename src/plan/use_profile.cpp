// SPDX-License-Identifier: Apache-2.0
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
    // Profiles describe a GPT with learned positions, which vocabpipe trains.
    options.model = {.name = "profiled GPT",
                     .config = {.num_layers = model.layers,
                                .hidden_size = model.hidden,
                                .ffn_hidden_size = model.ffn_hidden,
                                .num_attention_heads = model.heads,
                                .max_position_embeddings = model.seq_length,
                                .vocab_size = model.vocab,
                                .tied = profile.sizes.tied}};
    options.seq_length = model.seq_length;
    options.micro_batch_sizes = {model.micro_batch_size};
    options.device.name = profile.device;
    options.profile = std::move(profile);
}

}  // namespace vocabpipe
