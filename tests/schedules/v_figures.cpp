// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/v_figures.hpp"

#include "vocabpipe/validate.hpp"

#include "tests/schedules/oracles.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace vocabpipe::testing {

Schedule v_schedule(std::string_view family, const ScheduleOptions& options) {
    ScheduleOptions with_rows = options;
    with_rows.vocab_size = 1;
    const Schedule schedule = make_schedule(family, with_rows);
    validate(schedule);
    return without_vocabulary(schedule);
}

PassCosts v_costs(int64_t forward, int64_t input_gradient, int64_t weight_gradient,
                  int64_t latency) {
    return costs_of({{"F", forward}, {"I", input_gradient}, {"W", weight_gradient}}, latency);
}

PassCosts unit_costs() {
    return v_costs(1, 1, 1, 0);
}

int highest_peak(const Schedule& schedule) {
    const std::vector<int> peaks = peak_chunks(schedule);
    return *std::max_element(peaks.begin(), peaks.end());
}

int lowest_peak(const Schedule& schedule) {
    const std::vector<int> peaks = peak_chunks(schedule);
    return *std::min_element(peaks.begin(), peaks.end());
}

int expect_oracles_met(const std::string& schedule, std::string_view family) {
    int compared = 0;
    for (const auto& oracle : oracles().at("cases")) {
        if (!oracle.at("schedule").get<std::string>().starts_with(schedule)) continue;
        SCOPED_TRACE(oracle.at("id").get<std::string>());
        EXPECT_EQ(oracle.at("compare"), "bubble_and_peak");
        const std::vector<int> theirs = oracle.at("peak_chunks_per_rank");
        for (const auto& figures : oracle.at("metrics")) {
            SCOPED_TRACE(figures.dump());
            ScheduleOptions options{.ranks = oracle.at("p"), .microbatches = oracle.at("m")};
            options.costs = costs_of(figures.at("cost"), figures.at("latency"));
            if (oracle.contains("params") && oracle.at("params").is_object()) {
                options.rule.memory_limit = oracle.at("params").value("memory_cap_chunks", 0);
            }
            const Schedule ours = v_schedule(family, options);
            const PassTimes times = time_passes(ours, options.costs);
            EXPECT_LE(times.makespan, figures.at("makespan").get<int64_t>());
            EXPECT_LE(times.largest_span, figures.at("max_span").get<int64_t>());
            const std::vector<int> peaks = peak_chunks(ours);
            for (size_t rank = 0; rank < peaks.size(); ++rank) {
                EXPECT_LE(peaks[rank], theirs[rank]) << "rank " << rank;
            }
            ++compared;
        }
    }
    return compared;
}

}  // namespace vocabpipe::testing
