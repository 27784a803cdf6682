// SPDX-License-Identifier: Apache-2.0
// zb and zb-v against the heuristics of the authors of zero bubble. The figures are makespan and
// largest span of what sail-sg/zero-bubble-pipeline-parallelism at 39f2c186 makes (zb.py, the best
// of its eight settings; zbv.py, the best of four), timed by an independent program.
#include "vocabpipe/pass_times.hpp"

#include "tests/schedules/v_figures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace vocabpipe::testing {
namespace {

struct Published {
    std::string schedule;
    int p = 0, m = 0, memory_limit = 0;
    int64_t f = 0, i = 0, w = 0, latency = 0, makespan = 0, largest_span = 0;
};

std::vector<Published> published() {
    std::ifstream file(VOCABPIPE_TEST_DATA "/zero_bubble_heuristics.csv");
    std::string line;
    std::getline(file, line);  // names of the columns
    std::vector<Published> rows;
    while (std::getline(file, line)) {
        std::replace(line.begin(), line.end(), ',', ' ');
        Published row;
        std::istringstream(line) >> row.schedule >> row.p >> row.m >> row.memory_limit >> row.f >>
            row.i >> row.w >> row.latency >> row.makespan >> row.largest_span;
        rows.push_back(row);
    }
    return rows;
}

TEST(PublishedHeuristics, AreMetOrBeatenAtEveryCostAndMemory) {
    int better = 0;
    int compared = 0;
    for (const Published& row : published()) {
        const PassCosts costs = v_costs(row.f, row.i, row.w, row.latency);
        const Schedule ours = v_schedule(row.schedule, {.ranks = row.p,
                                                        .microbatches = row.m,
                                                        .rule = {.memory_limit = row.memory_limit},
                                                        .costs = costs});
        const PassTimes times = time_passes(ours, costs);
        const std::string of =
            row.schedule + " p=" + std::to_string(row.p) + " m=" + std::to_string(row.m) +
            " k=" + std::to_string(row.memory_limit) + " " + std::to_string(row.f) + "," +
            std::to_string(row.i) + "," + std::to_string(row.w) + "," + std::to_string(row.latency);
        EXPECT_LE(times.makespan, row.makespan) << of;
        // The one with the shorter span, of two lists as long as each other.
        if (times.makespan == row.makespan) {
            EXPECT_LE(times.largest_span, row.largest_span) << of;
        }
        EXPECT_LE(1000 * times.largest_span, 1009 * row.largest_span) << of;
        EXPECT_LE(highest_peak(ours), row.memory_limit > 0 ? row.memory_limit : 2 * row.p) << of;
        if (times.makespan < row.makespan) ++better;
        ++compared;
    }
    EXPECT_EQ(compared, 192);
    EXPECT_EQ(better, 32);
}

}  // namespace
}  // namespace vocabpipe::testing
