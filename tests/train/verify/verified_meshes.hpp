// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/model_config.hpp"

#include <functional>
#include <ostream>
#include <vector>

namespace vocabpipe::testing {

/// A mesh, and whether it has the bits of one rank.
struct VerifiedMesh {
    const char* name;
    int ranks;
    bool to_the_bit;
    std::function<void(TrainOptions&)> set;
    friend void PrintTo(const VerifiedMesh& mesh, std::ostream* out) { *out << mesh.name; }
};

inline std::vector<VerifiedMesh> verified_meshes() {
    const auto whole = [](TrainOptions& o) { o.vocab_mode = VocabMode::none; };
    return {
        {"pipeline", 2, true, whole},
        {"pipeline_of_four", 4, true, whole},
        {"zero_bubble", 2, true,
         [](TrainOptions& o) {
             o.vocab_mode = VocabMode::redistributed;
             o.schedule = "zb-h1";
         }},
        {"untied", 2, true,
         [](TrainOptions& o) {
             o.vocab_mode = VocabMode::none;
             o.model.tied = false;
         }},
        {"bf16", 2, true,
         [](TrainOptions& o) {
             o.vocab_mode = VocabMode::none;
             o.model.dtype = DType::bf16;
         }},
        {"shards", 2, false, [](TrainOptions&) {}},
        {"shards_in_bf16", 2, false, [](TrainOptions& o) { o.model.dtype = DType::bf16; }},
        {"two_barriers", 4, false, [](TrainOptions& o) { o.vocab_mode = VocabMode::two_barriers; }},
        {"replicas", 4, false, [](TrainOptions& o) { o.pipeline_model_parallel_size = 2; }},
        {"replicas_in_bf16", 4, false,
         [](TrainOptions& o) {
             o.pipeline_model_parallel_size = 2;
             o.model.dtype = DType::bf16;
         }},
        {"replicas_that_share_layers", 4, false,
         [](TrainOptions& o) {
             o.pipeline_model_parallel_size = 2;
             o.schedule = "interleaved";
             o.rule.chunks = 2;
             o.zero.stage = 3;
         }},
        {"tensor_ranks", 4, false, [](TrainOptions& o) { o.tensor_model_parallel_size = 2; }},
        {"context_ranks", 4, false, [](TrainOptions& o) { o.context_parallel_size = 2; }},
        {"tensor_ranks_in_bf16", 4, false,
         [](TrainOptions& o) {
             o.tensor_model_parallel_size = 2;
             o.model.dtype = DType::bf16;
         }},
        {"several_stages_per_rank", 2, true,
         [](TrainOptions& o) {
             o.vocab_mode = VocabMode::none;
             o.schedule = "interleaved";
             o.rule.chunks = 2;
         }},
        {"recomputation", 2, false, [](TrainOptions& o) { o.recompute = Recompute::full; }},
        {"expert_ranks", 4, false,
         [](TrainOptions& o) {
             set_family(o.model, "mixtral");
             o.model.moe.experts = 4;
             o.model.tied = false;
             o.pipeline_model_parallel_size = 2;
             o.expert_model_parallel_size = 2;
         }},
        {"several_predicted_tokens", 2, false,
         [](TrainOptions& o) {
             set_family(o.model, "llama");
             o.model.mtp_num_layers = 2;
         }},
        {"several_predicted_tokens_on_tensor_ranks", 4, false,
         [](TrainOptions& o) {
             set_family(o.model, "llama");
             o.model.mtp_num_layers = 2;
             o.tensor_model_parallel_size = 2;
         }},
        {"several_predicted_tokens_with_expert_ranks", 4, false,
         [](TrainOptions& o) {
             set_family(o.model, "mixtral");
             o.model.moe.experts = 4;
             o.model.mtp_num_layers = 1;
             o.model.tied = false;
             o.pipeline_model_parallel_size = 2;
             o.expert_model_parallel_size = 2;
         }},
        {"growing_batches", 2, false,
         [](TrainOptions& o) { o.ramp_up = {.start = 2, .increment = 2, .samples = 6}; }},
    };
}

}  // namespace vocabpipe::testing
