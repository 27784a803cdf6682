// SPDX-License-Identifier: Apache-2.0
#include "src/train/plan/plan_profile.hpp"

#include "vocabpipe/error.hpp"

#include <string>
#include <utility>

namespace vocabpipe {

namespace {

/// Persistent bytes in a pipeline without replicas, as profiles have them.
PersistentBytes without_replicas(const StepPlan& step, int pipeline_rank) {
    ModelPartition alone = step.partition;
    alone.replicas = 1;
    const Mesh mesh = alone.mesh(step.schedule.ranks);
    return persistent_bytes(step.model, alone, step.schedule,
                            mesh.world_rank({.pipeline = pipeline_rank}));
}

}  // namespace

TableCosts costs_of_file(const TrainOptions& options, const StepPlan& placed) {
    const ModelPartition& partition = placed.partition;
    const Schedule& schedule = placed.schedule;
    const Profile profile = read_profile(options.cost_file);
    const auto refuse = [&](const std::string& what, const auto& theirs, const auto& ours) {
        if (theirs == ours) return;
        throw UsageError("--schedule-costs " + options.cost_file + ": was measured with " + what +
                         "; measure with the flags of this run, or use auto");
    };
    const auto number = [&](const std::string& what, int64_t theirs, int64_t ours) {
        refuse(what + " " + std::to_string(theirs) + ", not " + std::to_string(ours), theirs, ours);
    };
    number("ranks", profile.ranks(), schedule.ranks);
    number("stages", profile.stages(), schedule.stages);
    number("--tensor-model-parallel-size", profile.sizes.tensor, placed.sizes.tensor);
    number("tokens per microbatch", profile.sizes.tokens, placed.sizes.tokens);
    number("hidden size", profile.sizes.hidden, placed.sizes.hidden);
    number("feed-forward size", profile.model.ffn_hidden, options.model.ffn_hidden_size);
    number("attention heads", profile.model.heads, options.model.num_attention_heads);
    number("vocabulary", profile.model.vocab, options.model.vocab_size);
    if (partition.recompute != Recompute::none) {
        const Recompute theirs = recomputed_in(profile);
        refuse("--recompute-granularity " + std::string(to_string(theirs)) + ", not " +
                   std::string(to_string(partition.recompute)),
               theirs, partition.recompute);
    }
    refuse("different layers per stage", profile.model.layers_per_stage,
           partition.layers_per_stage);
    refuse("a different placement of the stages", profile.rank_of_stage, schedule.rank_of_stage);
    refuse("different embedding rows per rank", profile.input, schedule.input);
    refuse("different output rows per rank", profile.output, schedule.output);
    // A difference means other biases, norms, gates or key-value heads: another family or shape.
    std::vector<PersistentBytes> mine;
    for (int rank = 0; rank < schedule.ranks; ++rank)
        mine.push_back(without_replicas(placed, rank));
    // Evaluation alone holds less than the training that was measured.
    if (!options.evaluation.skip_train) {
        refuse("different weights in the model", profile.persistent, mine);
    }
    return profile.costs;
}

Profile profile_of(const TrainingPlan& plan, const TableCosts& costs, std::vector<Op> derived,
                   std::vector<LinkSample> links) {
    const TrainOptions& options = plan.options();
    const ModelConfig& m = options.model;
    Profile profile;
    profile.host = plan.placement(0).host;
    profile.device = plan.placement(0).device;
    if (!plan.placement(0).memory) {
        profile.device += ", " + std::to_string(plan.threads()) + " threads per rank";
    }
    profile.date = options.date;
    profile.command = options.command;
    profile.model = {.layers = m.num_layers,
                     .hidden = m.hidden_size,
                     .ffn_hidden = m.ffn_hidden_size,
                     .heads = m.num_attention_heads,
                     .seq_length = m.seq_length,
                     .micro_batch_size = options.micro_batch_size,
                     .vocab = m.vocab_size,
                     .layers_per_stage = plan.partition().layers_per_stage};
    profile.rank_of_stage = plan.schedule().rank_of_stage;
    profile.input = plan.schedule().input;
    profile.output = plan.schedule().output;
    profile.barriers = plan.schedule().barriers;
    profile.costs = costs;
    profile.derived = std::move(derived);
    profile.sizes = plan.sizes();
    for (int rank = 0; rank < plan.mesh().pipeline; ++rank) {
        profile.persistent.push_back(without_replicas(plan.steps().front(), rank));
        // Scaled to the whole rank, as in a pipeline without replicas.
        for (const Op op : {Op::Report, Op::Update}) {
            profile.costs.rank_ns[static_cast<size_t>(rank)][static_cast<size_t>(op)] *=
                plan.mesh().data;
        }
    }
    profile.costs.slices = 1;
    profile.sizes.replicas = 1;
    profile.sizes.buckets.clear();
    profile.links = std::move(links);
    return profile;
}

}  // namespace vocabpipe
