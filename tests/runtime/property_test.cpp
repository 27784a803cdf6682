// SPDX-License-Identifier: Apache-2.0
// Schedules that nobody designed, valid and broken: refused where an independent checker says so,
// else run on a world of threads, with the bits of the single-rank oracle. Nothing hangs: ranks
// that make no progress end with an error.
//
// VOCABPIPE_PROPERTY_CASES: schedules per property (default 2000, with sanitizers 400).
#include "tests/runtime/property.hpp"
#include "tests/support/brute_force_checker.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/validate.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

namespace vocabpipe::testing {
namespace {

const int kCases = number_of_cases(2000);

/// Sizes do not matter to a schedule that is refused.
bool is_refused(const Schedule& schedule) {
    try {
        (void)lower(schedule, {}, TableCosts{});
    } catch (const ScheduleError&) {
        return true;
    } catch (const UsageError&) {
        return false;  // about the sizes: the schedule itself has been accepted
    }
    return false;
}

TEST(Property, ValidSchedulesGiveTheBitsOfTheSingleRank) {
    Property("a valid schedule runs and gives the oracle's bits", kCases).holds([] {
        const Shape shape = any_shape();
        std::mt19937 random(shape.seed);
        const Schedule schedule =
            random_schedule(random, shape.ranks, shape.stages, shape.microbatches, shape.vocab_size,
                            shape.forward_only);
        RC_LOG(describe(schedule));
        RC_ASSERT(brute_force_fault(schedule) == "");
        RC_ASSERT(!is_refused(schedule));
        RC_ASSERT(fault_of_run(schedule, shape.seed) == "");
    });
}

TEST(Property, MutatedSchedulesAreRefusedOrGiveTheBitsOfTheSingleRank) {
    int refused = 0;
    int run = 0;
    Property("a mutated schedule is refused or gives the oracle's bits", kCases).holds([&] {
        const Shape shape = any_shape();
        std::mt19937 random(shape.seed);
        Schedule schedule = random_schedule(random, shape.ranks, shape.stages, shape.microbatches,
                                            shape.vocab_size, shape.forward_only);
        const int mutations = *rc::gen::inRange(1, 4).as("mutations");
        for (int i = 0; i < mutations; ++i) {
            RC_LOG(mutate(schedule, random));
            const bool nothing_left = std::all_of(schedule.passes.begin(), schedule.passes.end(),
                                                  [](const auto& list) { return list.empty(); });
            if (nothing_left) break;
        }
        RC_LOG(describe(schedule));
        const std::string fault = brute_force_fault(schedule);
        RC_LOG("checker: " + fault);
        RC_ASSERT(is_refused(schedule) == !fault.empty());
        if (fault.empty()) {
            RC_ASSERT(fault_of_run(schedule, shape.seed) == "");
        }
        ++(fault.empty() ? run : refused);
    });
    std::printf("%d refused, %d run\n", refused, run);
    EXPECT_GT(refused, kCases / 10);
    EXPECT_GT(run, kCases / 10);
}

}  // namespace
}  // namespace vocabpipe::testing
