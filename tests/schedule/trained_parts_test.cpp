// SPDX-License-Identifier: Apache-2.0
// Schedules without the passes that only frozen parameters need.
#include "vocabpipe/trained_parts.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/validate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// Some stages are trained, and the embedding perhaps.
TrainedParts random_parts(const Schedule& schedule, std::mt19937& random) {
    TrainedParts trained{.embedding = random() % 3 == 0};
    for (int stage = 0; stage < schedule.stages; ++stage) {
        trained.stages.push_back(random() % 3 == 0);
    }
    if (trained.embedding) return trained;
    const auto first = std::find(trained.stages.begin(), trained.stages.end() - 1, true);
    trained.first_backward = static_cast<int>(first - trained.stages.begin());
    return trained;
}

TEST(TrainedParts, LeaveAScheduleThatRunsHoweverItWasMade) {
    std::mt19937 random(29);
    for (int i = 0; i < 400; ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const Schedule whole = random_schedule(random, {.most_ranks = 5, .most_stages = 8});
        const TrainedParts trained = random_parts(whole, random);
        const Schedule part = without_frozen_passes(whole, trained);
        const auto violation = find_violation(part);
        ASSERT_FALSE(violation) << violation->message() << "\n" << describe(part);
        // Lowering proves that the programs cannot deadlock.
        (void)lower(part, random_sizes(part, random), uneven_costs(part));
        if (whole.forward_only()) {
            EXPECT_EQ(part.passes, whole.passes);
            continue;
        }
        for (const std::vector<Pass>& list : part.passes) {
            for (const Pass& pass : list) {
                const bool of_weights = pass.op == Op::W || pass.op == Op::I;
                if (of_weights) {
                    EXPECT_TRUE(trained.stages[pass.stage]) << to_string(pass);
                }
                const bool backward = of_weights || pass.op == Op::B || pass.op == Op::R;
                if (backward) {
                    EXPECT_GE(pass.stage, trained.first_backward) << to_string(pass);
                }
                EXPECT_TRUE(pass.op != Op::G || trained.embedding);
            }
        }
    }
}

TEST(TrainedParts, OfAWholeModelChangeNothing) {
    std::mt19937 random(31);
    for (int i = 0; i < 50; ++i) {
        const Schedule whole = random_schedule(random, {});
        const Schedule same = without_frozen_passes(
            whole, {.stages = std::vector<bool>(static_cast<size_t>(whole.stages), true)});
        EXPECT_EQ(same.passes, whole.passes);
    }
}

TEST(TrainedParts, EndAPairWhoseBackwardIsNotNeeded) {
    Schedule schedule;
    schedule.ranks = 1;
    schedule.stages = 2;
    schedule.microbatches = 2;
    schedule.rank_of_stage = {0, 0};
    schedule.input = schedule.output = ShardMap::whole(4, 1, 0);
    schedule.passes = {{{Op::E, 0, 0},
                        {Op::F, 0, 0},
                        {Op::F, 1, 0},
                        {Op::S, 0, 0},
                        {Op::T, 0, 0},
                        {Op::B, 1, 0},
                        {Op::E, 0, 1},
                        {Op::F, 0, 1, /*with_next=*/true},
                        {Op::B, 0, 0},
                        {Op::G, 0, 0},
                        {Op::F, 1, 1},
                        {Op::S, 0, 1},
                        {Op::T, 0, 1},
                        {Op::B, 1, 1},
                        {Op::B, 0, 1},
                        {Op::G, 0, 1}}};
    ASSERT_FALSE(find_violation(schedule));
    const Schedule top = without_frozen_passes(
        schedule, {.stages = {false, true}, .embedding = false, .first_backward = 1});
    EXPECT_FALSE(find_violation(top));
    EXPECT_EQ(top.passes.front().size(), 12U);
    for (const Pass& pass : top.passes.front()) EXPECT_FALSE(pass.with_next) << to_string(pass);

    // A schedule says what it leaves out.
    Schedule silent = top;
    silent.first_backward = 0;
    EXPECT_THAT(find_violation(silent)->message(), HasSubstr("is missing"));
    silent = without_frozen_passes(schedule, {.stages = {true, true}, .embedding = false});
    EXPECT_FALSE(find_violation(silent));
    silent.embedding_gradient = true;
    EXPECT_THAT(find_violation(silent)->message(), HasSubstr("G0 is missing"));
    Schedule more = top;
    more.passes.front().push_back({Op::B, 0, 1});
    EXPECT_THAT(find_violation(more)->message(), HasSubstr("backward of frozen parameters"));
    more = top;
    more.first_backward = 2;
    EXPECT_THAT(find_violation(more)->message(), HasSubstr("first_backward is 2"));
    more = top;
    more.embedding_gradient = true;
    EXPECT_THAT(find_violation(more)->message(), HasSubstr("embedding_gradient"));
}

}  // namespace
}  // namespace vocabpipe::testing
