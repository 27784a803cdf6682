// SPDX-License-Identifier: Apache-2.0
// Formulas of docs/schedules.md, `eager-1f1b`.
#include "vocabpipe/pass_times.hpp"

#include "tests/schedules/notation.hpp"
#include "tests/schedules/transformer_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace vocabpipe::testing {
namespace {

Schedule eager(int ranks, int microbatches, int depth) {
    return transformer_passes_of(
        "eager-1f1b",
        {.ranks = ranks, .microbatches = microbatches, .rule = {.warm_up_depth = depth}});
}

TEST(EagerOneFOneB, HoldsDepthMicrobatchesPerRankBelow) {
    for (int p = 1; p <= 8; ++p) {
        for (int m = 1; m <= 3 * p; ++m) {
            for (int depth = 1; depth <= 4; ++depth) {
                const std::vector<int> peaks = peak_chunks(eager(p, m, depth));
                for (int r = 0; r < p; ++r) {
                    ASSERT_EQ(peaks[static_cast<size_t>(r)], std::min(m, 1 + depth * (p - 1 - r)));
                }
            }
        }
    }
}

TEST(EagerOneFOneB, TakesAsLongAsOneFOneBWithoutLatency) {
    for (const UnitCosts& costs : {UnitCosts{1, 1, 1}, UnitCosts{10, 12, 8}, UnitCosts{7, 3, 1}}) {
        const int64_t work = costs.f + costs.i + costs.w;
        for (int p = 1; p <= 8; ++p) {
            for (int m = 1; m <= 3 * p; ++m) {
                for (int depth = 1; depth <= 3; ++depth) {
                    const PassTimes times = time_passes(eager(p, m, depth), pass_costs(costs));
                    ASSERT_EQ(times.makespan, (m + p - 1) * work);
                    for (int r = 0; r < p; ++r) {
                        const auto rank = static_cast<size_t>(r);
                        ASSERT_EQ(times.span[rank] - times.busy[rank], (p - 1 - r) * work);
                    }
                }
            }
        }
    }
}

// With D = 1 every round trip of the steady state is on the critical path.
TEST(EagerOneFOneB, PaysForLatencyOnlyInFillAndDrain) {
    for (int64_t hop = 0; hop <= 15; ++hop) {
        const UnitCosts costs{10, 12, 8, hop};
        for (int p = 2; p <= 6; ++p) {
            for (int m = p; m <= 4 * p; ++m) {
                const int64_t plain = (m + p - 1) * 30;
                ASSERT_EQ(time_passes(eager(p, m, 2), pass_costs(costs)).makespan,
                          plain + 2 * hop * (p - 1));
                ASSERT_EQ(time_passes(eager(p, m, 1), pass_costs(costs)).makespan,
                          plain + 2 * hop * (m + p - 2 - (m + p - 2) / p));
            }
        }
    }
}

TEST(EagerOneFOneB, IsWhatADeeperOneFOneBIs) {
    for (const VocabMode mode : kEveryMode) {
        const ScheduleOptions options{.ranks = 3,
                                      .microbatches = 7,
                                      .vocab_mode = mode,
                                      .vocab_size = 9,
                                      .rule = {.warm_up_depth = 2}};
        EXPECT_EQ(make_schedule("1f1b", options).passes,
                  make_schedule("eager-1f1b", options).passes);
    }
    EXPECT_EQ(lists_of(eager(3, 7, 1)),
              lists_of(transformer_passes_of("1f1b", {.ranks = 3, .microbatches = 7})));
    EXPECT_EQ(lists_of(eager(3, 7, 0)), lists_of(eager(3, 7, 2)));
}

TEST(EagerOneFOneB, TakesAnyDepth) {
    for (const int peak : peak_chunks(eager(4, 9, 2147483647))) EXPECT_LE(peak, 9);
}

}  // namespace
}  // namespace vocabpipe::testing
