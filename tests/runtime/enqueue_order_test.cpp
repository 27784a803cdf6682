// SPDX-License-Identifier: Apache-2.0
// The one order in which a device with streams gets the actions of a program.
#include "src/runtime/loaded_program.hpp"
#include "src/schedule/ops.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/lower.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr std::array kRanks{2, 3, 4};

StepSizes some_sizes(const Schedule& schedule, int replicas) {
    StepSizes sizes;
    sizes.tokens = 24;
    sizes.hidden = 8;
    sizes.report_bytes = 64;
    sizes.replicas = replicas;
    sizes.stages.assign(static_cast<size_t>(schedule.stages), {.saved = 100, .for_weight = 50});
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        sizes.shards.push_back({.exp_logits = 24 * schedule.output.rows(rank) * 4});
    }
    if (replicas == 1) return sizes;
    sizes.buckets.resize(static_cast<size_t>(schedule.ranks));
    for (int stage = 0; stage < schedule.stages; ++stage) {
        GradientBucket bucket{.of = GradientBucket::Of::stage, .stage = stage, .first = {}};
        for (int i = 0; i <= replicas; ++i) bucket.first.push_back(64 * i);
        sizes.buckets[static_cast<size_t>(schedule.rank_of_stage[static_cast<size_t>(stage)])]
            .push_back(bucket);
    }
    return sizes;
}

std::vector<Program> programs_of(const ScheduleCase& c, int microbatches, int replicas) {
    const Schedule schedule = vocabpipe::make_schedule(
        c.family,
        {.ranks = c.ranks, .microbatches = microbatches, .vocab_mode = c.mode, .vocab_size = 53});
    TableCosts costs = TableCosts::uniform(c.ranks, schedule.stages, 1000, 2000, 500);
    costs.slices = replicas;
    costs.latency_ns = 30;
    costs.communication = CommunicationOrder::launches;
    return lower(schedule, some_sizes(schedule, replicas), costs);
}

bool is_pass(const Program& program, uint32_t action) {
    return program.actions[action].what == Do::pass;
}

/// The program with its actions in another order, all on one lane: each begins when the one before
/// it has ended.
Program in_one_queue(const Program& program, const std::vector<uint32_t>& order) {
    Program queue = program;
    std::vector<uint32_t> place(order.size());
    for (uint32_t i = 0; i < order.size(); ++i) {
        place[order[i]] = i;
        queue.actions[i] = program.actions[order[i]];
        queue.actions[i].lane = Lane::compute;
    }
    for (Edge& edge : queue.edges) edge = {place[edge.before], place[edge.after]};
    return queue;
}

class EnqueueOrder : public ::testing::TestWithParam<ScheduleCase> {
protected:
    void each(const std::function<void(const std::vector<Program>&)>& check) const {
        const ScheduleCase& c = GetParam();
        for (const int microbatches : {c.ranks - 1, 2 * c.ranks + 1}) {
            for (const int replicas : {1, 2}) {
                SCOPED_TRACE(std::to_string(microbatches) + " microbatches, " +
                             std::to_string(replicas) + " replicas");
                check(programs_of(c, microbatches, replicas));
            }
        }
    }
};

TEST_P(EnqueueOrder, KeepsEveryEdgeAndTheOrderOfPassesAndOfCommunication) {
    each([](const std::vector<Program>& programs) {
        for (const Program& program : programs) {
            const std::vector<uint32_t> order = enqueue_order(program);
            ASSERT_EQ(order.size(), program.actions.size());
            std::vector<uint32_t> place(order.size(), UINT32_MAX);
            std::array<uint32_t, 3> last{};
            for (uint32_t i = 0; i < order.size(); ++i) {
                place[order[i]] = i;
                uint32_t& before =
                    last[static_cast<size_t>(traits(program.actions[order[i]].what).kind)];
                EXPECT_TRUE(before == 0 || before < order[i])
                    << program.name_of(program.actions[order[i]]);
                before = order[i];
            }
            EXPECT_EQ(std::count(place.begin(), place.end(), UINT32_MAX), 0);
            for (const Edge& edge : program.edges) {
                EXPECT_LT(place[edge.before], place[edge.after]);
            }
        }
    });
}

TEST_P(EnqueueOrder, PutsNothingBehindAPassThatItNeedNotWaitFor) {
    each([](const std::vector<Program>& programs) {
        for (const Program& program : programs) {
            const std::vector<uint32_t> order = enqueue_order(program);
            // What comes between two passes waits for the first of them, or is behind something of
            // its kind that does.
            std::vector<std::vector<uint32_t>> before(order.size());
            for (const Edge& edge : program.edges) before[edge.after].push_back(edge.before);
            std::vector<bool> waits(order.size(), false);
            std::array<bool, 3> behind{};
            bool any_pass = false;
            for (const uint32_t action : order) {
                if (is_pass(program, action)) {
                    std::fill(waits.begin(), waits.end(), false);
                    behind.fill(false);
                    waits[action] = any_pass = true;
                    continue;
                }
                bool& same = behind[static_cast<size_t>(traits(program.actions[action].what).kind)];
                waits[action] = same =
                    same || std::any_of(before[action].begin(), before[action].end(),
                                        [&](uint32_t b) { return bool{waits[b]}; });
                if (any_pass) {
                    EXPECT_TRUE(waits[action]) << program.name_of(program.actions[action]);
                }
            }
        }
    });
}

TEST_P(EnqueueOrder, EndsEvenIfTheHostWaitsForThePartnersOfEveryCommunication) {
    each([](const std::vector<Program>& programs) {
        std::vector<Program> queues;
        for (const Program& program : programs) {
            queues.push_back(in_one_queue(program, enqueue_order(program)));
        }
        EXPECT_EQ(find_deadlock(queues).value_or(""), "");
    });
}

INSTANTIATE_TEST_SUITE_P(Every, EnqueueOrder, ::testing::ValuesIn(every_schedule(kRanks)),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace vocabpipe::testing
