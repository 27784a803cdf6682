// SPDX-License-Identifier: Apache-2.0
// The simulation of one slice of a mesh against that of all its ranks.
#include "src/plan/candidates.hpp"
#include "src/plan/evaluate.hpp"
#include "src/plan/step_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace vocabpipe::testing {
namespace {

struct Steps {
    int64_t slice = 0, world = 0;
    double slice_bubble = 0, world_bubble = 0;
};

Steps steps_of(const PlanOptions& options, const Candidate& candidate,
               const SimulateOptions& how = {}) {
    const StepModel step =
        step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate);
    const Lowered lowered =
        lower_world(Evaluator(options).order(candidate), step.sizes, step.costs, {});
    const TimelineSummary slice = simulate(lowered, step.costs, how).summary;
    const TimelineSummary world = simulate(lowered.all(), step.costs, how).summary;
    return {slice.step_ns, world.step_ns, slice.bubble, world.bubble};
}

/// Every kind of mesh of so many GPUs, a few families in all modes.
std::vector<Candidate> meshes_of(PlanOptions& options, int gpus) {
    options.gpus = gpus;
    options.global_batch_size = 24;
    list_all_sizes(options);
    options.micro_batch_sizes = {1};
    options.recompute = {Recompute::none};
    options.schedules = {"1f1b", "v-half", "interleaved"};
    return list_candidates(options).possible;
}

TEST(SimulatedSlice, IsTheWorldWhereSlicesHaveTheSameLinks) {
    for (const int per_node : {1, 4, 8}) {  // every group inside a node, or not
        PlanOptions options = small_plan();
        options.device.gpus_per_node.value = per_node;
        const std::vector<Candidate> candidates = meshes_of(options, 8);
        EXPECT_GE(candidates.size(), 60U);
        for (const Candidate& candidate : candidates) {
            const Steps steps = steps_of(options, candidate);
            EXPECT_EQ(steps.slice, steps.world) << per_node << " " << to_string(candidate);
            EXPECT_NEAR(steps.slice_bubble, steps.world_bubble, 1e-9) << to_string(candidate);
        }
    }
}

// With five GPUs per node some groups of an axis are inside a node, others are not.
TEST(SimulatedSlice, TakesTheSlowestOfUnlikeLinks) {
    PlanOptions options = small_plan();
    options.device.gpus_per_node.value = 5;
    int unlike = 0;
    for (const Candidate& candidate : meshes_of(options, 12)) {
        const Steps steps = steps_of(options, candidate);
        EXPECT_GE(steps.slice, steps.world) << to_string(candidate);
        EXPECT_LE(static_cast<double>(steps.slice), 1.05 * static_cast<double>(steps.world))
            << to_string(candidate);
        unlike += steps.slice == steps.world ? 0 : 1;
    }
    EXPECT_GT(unlike, 0);
}

TEST(SimulatedSlice, SharesCoresWithItsCopies) {
    PlanOptions options = small_plan();
    for (const Candidate& candidate : meshes_of(options, 8)) {
        if (candidate.mesh.pipeline != 2 || candidate.mesh.data != 4) continue;
        for (const int cores : {2, 4, 5, 100}) {
            const Steps steps = steps_of(options, candidate, {.cores = cores});
            EXPECT_NEAR(static_cast<double>(steps.slice), static_cast<double>(steps.world),
                        1e-6 * static_cast<double>(steps.world))
                << cores << " " << to_string(candidate);
        }
    }
}

TEST(SimulatedSlice, HasThePersistentBytesOfItsRanks) {
    PlanOptions options = small_plan();
    const Candidate candidate{.schedule = "1f1b",
                              .layers_per_stage = {4, 4},
                              .mesh = {.pipeline = 2, .data = 2},
                              .microbatches = 4};
    const StepModel step =
        step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate);
    const Lowered lowered =
        lower_world(Evaluator(options).order(candidate), step.sizes, step.costs, {});
    SimulateOptions how;
    for (const uint64_t weights : {1, 2, 3, 4}) how.persistent.push_back({.weights = weights});
    const Simulation simulation = simulate(lowered, step.costs, how);
    ASSERT_EQ(simulation.memory.size(), 2U);
    EXPECT_EQ(simulation.memory[0].persistent.weights, 1U);
    EXPECT_EQ(simulation.memory[1].persistent.weights, 3U);
}

// One slice of 4,096 ranks takes the memory and the time of a pipeline.
TEST(SimulatedSlice, EvaluatesALargeWorldByItself) {
    PlanOptions options = small_plan();
    options.gpus = 4096;
    options.global_batch_size = 4096;
    const Candidate candidate{.schedule = "1f1b",
                              .vocab_mode = VocabMode::one_barrier,
                              .layers_per_stage = {2, 2, 2, 2},
                              .mesh = {.pipeline = 4, .data = 1024},
                              .microbatches = 4};
    options.receive_ahead = 1;
    const Evaluator evaluator(options);
    const PlanRow row =
        evaluator.row(candidate, evaluator.order(candidate), Evaluation::simulation);
    EXPECT_EQ(row.ranks.size(), 4U);
    EXPECT_EQ(row.ranks[1].rank, 1024);
    EXPECT_GT(row.step_ns, 0);
}

}  // namespace
}  // namespace vocabpipe::testing
