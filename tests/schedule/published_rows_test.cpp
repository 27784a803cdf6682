// SPDX-License-Identifier: Apache-2.0
// Iteration times of the paper's runs from their published pass times, no constant fitted
// (docs/performance.md).
#include "benchmarks/published_rows.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

TEST(PublishedRows, AreSimulatedWithinMinusTwoPointFiveAndPlusHalfAPercent) {
    const auto rows = read_published_rows(VOCABPIPE_PUBLISHED_PASS_TIMES);
    ASSERT_EQ(rows.size(), 20U);
    for (const PublishedRow& row : rows) {
        const PublishedCosts costs(row.costs);
        const Schedule schedule = row.schedule();
        const auto programs = lower(schedule, published_sizes(row, schedule.stages), costs);
        const auto ratio = static_cast<double>(simulate(programs, costs).summary.makespan_ns) /
                           static_cast<double>(row.iteration_us);
        EXPECT_GT(ratio, 1 - 0.025) << row.method << " " << row.vocab;
        EXPECT_LT(ratio, 1 + 0.005) << row.method << " " << row.vocab;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
