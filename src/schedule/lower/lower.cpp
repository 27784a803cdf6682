// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/lower.hpp"

#include "src/schedule/lower/dataflow.hpp"
#include "src/schedule/lower/ordering.hpp"
#include "src/schedule/lower/program_hash.hpp"
#include "src/schedule/lower/projection.hpp"
#include "src/schedule/lower/slice.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/validate.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace vocabpipe {

namespace {

using lowering::Dataflow;
using lowering::Part;
using lowering::Place;

void check_world_costs(const CostModel& costs, const Mesh& mesh) {
    if (costs.ranks() == 0 || costs.ranks() == mesh.size()) return;
    throw UsageError("lowering: costs are set for " + std::to_string(costs.ranks()) +
                     " ranks, but the world has " + std::to_string(mesh.size()) + ", " +
                     std::to_string(mesh.slices()) + " slices of " + std::to_string(mesh.pipeline) +
                     " pipeline ranks; set TableCosts::slices to Mesh::slices()");
}

void expect(bool ok, const std::string& what) {
    if (!ok) throw UsageError("lowering: " + what);
}

/// `stages`, `shards`: for how many the sizes of this length are set.
void check_length(const Schedule& schedule, int tensor, int64_t tokens, size_t stages,
                  size_t shards) {
    expect(tokens >= 1, "tokens must be at least 1");
    expect(stages == static_cast<size_t>(schedule.stages),
           "sizes are set for " + std::to_string(stages) + " stages, but the schedule has " +
               std::to_string(schedule.stages));
    expect(shards == static_cast<size_t>(schedule.ranks),
           "sizes are set for " + std::to_string(shards) + " output shards, but the schedule has " +
               std::to_string(schedule.ranks) + " ranks");
    expect(tokens % tensor == 0, std::to_string(tokens) +
                                     " tokens of a microbatch do not divide among " +
                                     std::to_string(tensor) + " tensor ranks");
}

/// Where stages are a graph.
void check_stage_graph(const Schedule& schedule, const StepSizes& sizes,
                       const LowerOptions& options) {
    expect(sizes.shorter.empty() && sizes.tensor == 1 && sizes.predicted_tokens == 1,
           "stages that are a graph have sequences of one length, one tensor rank and one "
           "predicted token");
    expect(options.pieces == 1, "stages that are a graph send whole tensors; set pieces to 1");
    expect(schedule.first_backward == 0, "stages that are a graph all have a backward");
    // A pass has its tensors among its operands, which a byte counts.
    constexpr size_t kMostOfStage = 200;
    std::vector<size_t> of_stage(static_cast<size_t>(schedule.stages));
    for (const StageTensor& tensor : *sizes.stage_tensors) {
        expect(tensor.bytes > 0 && tensor.maker >= 0 && !tensor.readers.empty() &&
                   std::ranges::is_sorted(tensor.readers, std::less_equal()) &&
                   tensor.readers.front() > tensor.maker && tensor.readers.back() < schedule.stages,
               "a tensor of stage " + std::to_string(tensor.maker) +
                   " must have bytes, and later stages of the schedule that read it, ascending");
        of_stage[static_cast<size_t>(tensor.maker)] += 1;
        for (const int reader : tensor.readers) of_stage[static_cast<size_t>(reader)] += 3;
    }
    for (const SharedWeight& weight : sizes.shared_weights) {
        expect(weight.bytes > 0 && weight.uses.size() >= 2 && weight.uses.size() <= kMostOfStage,
               "a shared weight has " + std::to_string(weight.bytes) + " bytes and " +
                   std::to_string(weight.uses.size()) + " uses; it needs bytes, and from 2 to " +
                   std::to_string(kMostOfStage) + " uses");
        for (const SharedWeight::Use& use : weight.uses) {
            expect(use.stage >= 0 && use.stage < schedule.stages,
                   "a shared weight is used in stage " + std::to_string(use.stage) +
                       ", which the schedule does not have");
        }
    }
    for (size_t s = 0; s < of_stage.size(); ++s) {
        expect(of_stage[s] <= kMostOfStage, "stage " + std::to_string(s) + " meets " +
                                                std::to_string(of_stage[s]) +
                                                " tensors and gradients of other stages; at most " +
                                                std::to_string(kMostOfStage) + " are possible");
    }
}

/// `bucket` is one of `rank`, whose buckets are `all`.
void check_shared(const Schedule& schedule, const GradientBucket& bucket, int rank,
                  const std::vector<GradientBucket>& all) {
    if (!bucket.shards_gradients && !bucket.shards_weights) return;
    expect(bucket.of == GradientBucket::Of::stage && bucket.stage >= 0 &&
               bucket.stage < schedule.stages &&
               schedule.rank_of_stage[static_cast<size_t>(bucket.stage)] == rank,
           "a bucket that ranks share must be of a stage of its rank");
    for (const GradientBucket& other : all) {
        const bool same_stage =
            other.of == GradientBucket::Of::stage && other.stage == bucket.stage;
        expect(!same_stage || other.shards_gradients == bucket.shards_gradients,
               "ranks share the gradients of some buckets of stage " +
                   std::to_string(bucket.stage) +
                   " and not of others, but its passes begin all of them anew, or none");
    }
}

void check_sizes(const Schedule& schedule, const StepSizes& sizes, const Mesh& mesh,
                 const LowerOptions& options) {
    expect(sizes.hidden >= 1, "hidden size must be at least 1");
    expect(sizes.predicted_tokens >= 1, "predicted tokens must be at least 1");
    expect(sizes.stage_tensors ||
               (!schedule.input.owners().empty() && !schedule.output.owners().empty()),
           "the input and the output layer need at least one row each");
    if (sizes.stage_tensors) check_stage_graph(schedule, sizes, options);
    check_length(schedule, sizes.tensor, sizes.tokens, sizes.stages.size(), sizes.shards.size());
    for (const LengthSizes& length : sizes.shorter) {
        check_length(schedule, sizes.tensor, length.tokens, length.stages.size(),
                     length.shards.size());
        expect(length.tokens <= sizes.tokens,
               "microbatches of shorter sequences have " + std::to_string(length.tokens) +
                   " tokens, but those of the longest only " + std::to_string(sizes.tokens));
    }
    for (const LengthSizes& length : sizes.shorter) {
        const auto owners =
            std::max(schedule.input.owners().size(), schedule.output.owners().size());
        expect(
            !options.as_longest || std::cmp_greater_equal(length.tokens / sizes.tensor, owners),
            "microbatches of " + std::to_string(length.tokens) +
                " tokens have fewer rows than there are shards of the vocabulary, so they cannot "
                "take the places of the longest; use longer sequences");
    }
    const std::vector<int>& lengths = sizes.length_of_microbatch;
    expect(lengths.empty() || lengths.size() == static_cast<size_t>(schedule.microbatches),
           "lengths are set for " + std::to_string(lengths.size()) +
               " microbatches, but the schedule has " + std::to_string(schedule.microbatches));
    expect(
        std::ranges::all_of(
            lengths, [&](int k) { return k >= 0 && std::cmp_less_equal(k, sizes.shorter.size()); }),
        "a microbatch has a length other than those of StepSizes::shorter");
    expect(sizes.has_experts.empty() ||
               sizes.has_experts.size() == static_cast<size_t>(schedule.stages),
           "which stages have experts is set for " + std::to_string(sizes.has_experts.size()) +
               " stages, but the schedule has " + std::to_string(schedule.stages));
    if (mesh.slices() == 1) return;
    expect(sizes.buckets.size() == static_cast<size_t>(schedule.ranks),
           "replicas and tensor ranks require gradient buckets of every rank");
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const std::vector<GradientBucket>& of_rank = sizes.buckets[static_cast<size_t>(rank)];
        for (const GradientBucket& bucket : of_rank) {
            check_shared(schedule, bucket, rank, of_rank);
            const int members = mesh.size_of(bucket.axis);
            expect(bucket.first.size() == static_cast<size_t>(members) + 1 &&
                       bucket.first.front() == 0 &&
                       std::is_sorted(bucket.first.begin(), bucket.first.end()),
                   "a gradient bucket requires a part for each of the " + std::to_string(members) +
                       " ranks of axis " + std::string(to_string(bucket.axis)) + ", in order");
        }
    }
}

}  // namespace

Lowered lower_world(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
                    const LowerOptions& options) {
    validate(schedule);
    if (options.pieces < 1 || options.pieces > kMostPieces) {
        throw UsageError("lowering: pieces are " + std::to_string(options.pieces) +
                         ", but must be 1 to " + std::to_string(kMostPieces));
    }
    if (options.bucket_piece < 1) {
        throw UsageError("lowering: pieces of gradient buckets have " +
                         std::to_string(options.bucket_piece) +
                         " elements, but must have at least 1");
    }
    if (options.zero.gather_ahead < 0) {
        throw UsageError("lowering: weights are gathered " +
                         std::to_string(options.zero.gather_ahead) +
                         " stages ahead, but must be at least 0");
    }
    const Mesh mesh = sizes.mesh(schedule.ranks);
    mesh.check();
    check_sizes(schedule, sizes, mesh, options);
    check_world_costs(costs, mesh);
    const Dataflow flow = lowering::build_dataflow(schedule, sizes, costs, options);
    const std::vector<Place> places = lowering::order_globally(flow, costs.communication_order());
    Lowered world = lowering::project(flow, places, mesh, lowering::stage_teams(sizes));
    for (Program& program : world.pipeline) {
        program.ranks = mesh.size();
        program.microbatches = schedule.microbatches;
        for (int j = 0; j < schedule.microbatches; ++j)
            program.tokens.push_back(sizes.tokens_of(j));
    }
    const uint64_t hash = lowering::hash_of(world, flow);
    for (Program& program : world.pipeline) program.hash = hash;
    lowering::take_own(world, flow);
    if (const std::optional<std::string> stuck = find_deadlock(world)) {
        throw UsageError("lowering produced a program that can deadlock: " + *stuck);
    }
    return world;
}

std::vector<Program> lower(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
                           const LowerOptions& options) {
    return lower_world(schedule, sizes, costs, options).all();
}

}  // namespace vocabpipe
