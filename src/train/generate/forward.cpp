// SPDX-License-Identifier: Apache-2.0
#include "src/train/generate/forward.hpp"

#include "src/model/blocks/layer_options.hpp"
#include "src/model/check_expert_parallel.hpp"
#include "src/model/model_rank_internals.hpp"
#include "src/model/tensor_shard.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/receive_early.hpp"

#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// UsageError for a model whose depths cannot draft.
void check_drafts(const TextGeneratorOptions& options) {
    if (!options.draft) return;
    const auto refuse = [](bool wrong, const std::string& what, const std::string& remedy) {
        if (!wrong) return;
        throw UsageError("--draft-with-mtp: " + what + "; " + remedy +
                         ", or leave out --draft-with-mtp");
    };
    const ModelConfig& model = options.model;
    refuse(model.mtp_num_layers == 0,
           "the model has no depths of multi-token prediction (num_nextn_predict_layers in its "
           "config.json)",
           "train one with --mtp-num-layers 1");
    refuse(model.moe.experts > 0, "is not supported with a mixture of experts",
           "use a model without experts");
    refuse(has_embedded_tokens(model),
           "is not supported with learned positions or scaled embeddings (" + model.family + ")",
           "use a family with rotary positions, such as llama");
    refuse(model.lora.rank > 0, "is not supported with adapters", "use a model without");
    refuse(options.tensor > 1,
           "is not supported with --tensor-model-parallel-size " + std::to_string(options.tensor),
           "use 1");
}

}  // namespace

ModelConfig filled_up(const TextGeneratorOptions& options, int64_t tokens) {
    ModelConfig config = options.model;
    config.seq_length = largest_part(tokens, options.tensor) * options.tensor;
    return config;
}

namespace {

/// plan_forward() before it is lowered.
StepPlan forward_passes(const TextGeneratorOptions& options, int64_t tokens) {
    check_expert_ranks(options.mesh(), options.expert_tensor);
    check_drafts(options);
    const StepCluster cluster{.ranks = options.ranks,
                              .replicas = options.mesh().data,
                              .tensor = options.tensor,
                              .expert = options.expert,
                              .expert_tensor = options.expert_tensor,
                              .threads_per_rank = options.threads_per_rank,
                              .operators = options.operators};
    const StepWork work{.evaluation = true, .optimizer = false, .training = false};
    StepSchedule schedule;
    schedule.layers_per_stage =
        place_step(filled_up(options, options.model.seq_length), cluster, schedule, work)
            .partition.layers_per_stage;
    StepPlan plan = plan_step(filled_up(options, tokens), cluster, schedule, work);
    ModelConfig config = options.model;
    config.seq_length = tokens;
    // Layers use the same memory in turn, and exponentials of logits are not kept.
    for (size_t s = 0; s < plan.sizes.stages.size(); ++s) {
        plan.sizes.stages[s] =
            ModelRankInternals::forward_bytes(config, plan.partition, static_cast<int>(s));
    }
    for (ShardBytes& shard : plan.sizes.shards) shard = {};
    return plan;
}

}  // namespace

StepPlan plan_forward(const TextGeneratorOptions& options, int64_t tokens) {
    StepPlan plan = forward_passes(options, tokens);
    plan.lowered = lower_step(plan.schedule, plan.sizes, plan.costs, {}).lowered;
    return plan;
}

StepPlan plan_draft(const TextGeneratorOptions& options, int64_t tokens) {
    StepPlan plan = forward_passes(options, tokens);
    Schedule& schedule = plan.schedule;
    const int last = schedule.stages - 1;
    for (std::vector<Pass>& list : schedule.passes) {
        std::erase_if(list,
                      [&](const Pass& pass) { return pass.op == Op::F && pass.stage != last; });
        for (Pass& pass : list) pass.stage = 0;
    }
    schedule.rank_of_stage = {schedule.rank_of_stage.back()};
    schedule.stages = 1;
    ModelConfig config = options.model;
    config.seq_length = tokens;
    plan.sizes.stages = {ModelRankInternals::draft_bytes(config, plan.partition)};
    plan.sizes.has_experts = {false};
    plan.costs.stage_ns = {plan.costs.stage_ns.back()};
    plan.lowered = lower_step(schedule, plan.sizes, plan.costs, {}).lowered;
    return plan;
}

Forward::Forward(Communicator& world, ModelRank& model, LogitsLayer* output,
                 const TextGeneratorOptions& options, StepPlan plan, const MakeStage& make)
    : plan_(std::move(plan)), output_(output) {
    RankModules modules{.input = model.input(), .output = output};
    const Mesh::Place place = plan_.mesh().place(world.rank());
    world.agree([&] {
        for (int s = 0; s < plan_.schedule.stages; ++s) {
            const bool mine =
                plan_.schedule.rank_of_stage[static_cast<size_t>(s)] == place.pipeline;
            stages_.push_back(mine ? make(s, place) : nullptr);
            modules.stages.push_back(stages_.back().get());
        }
    });
    executor_.emplace(world, model.device(), modules, plan_.sizes,
                      ExecutorOptions{.threads = options.threads_per_rank});
    executor_->load(plan_.lowered);
}

void Forward::run(std::span<const int32_t> tokens, int64_t scored) {
    std::vector<int32_t> filled(tokens.begin(), tokens.end());
    filled.resize(static_cast<size_t>(plan_.sizes.tokens), tokens.back());
    const std::vector<int32_t> labels(filled.size(), -1);
    const std::vector<float> gradients(filled.size(), 0.0F);
    const Microbatch microbatch{.index = 0,
                                .sequences = 1,
                                .seq_length = std::ssize(filled),
                                .tokens = filled,
                                .labels = labels,
                                .loss_gradient = gradients};
    if (output_ != nullptr) output_->score_tokens(std::ssize(tokens) - scored, scored);
    executor_->run_step({&microbatch, 1});
}

}  // namespace vocabpipe
