// SPDX-License-Identifier: Apache-2.0
// bench_published: iteration times simulated from published pass times, beside the measured ones;
// and what the other schedules would make of the same passes.
//
//   build/bin/bench_published [FILE]
#include "benchmarks/published_rows.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/generate.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/simulate.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

namespace {

using namespace vocabpipe;

struct Result {
    std::string name;
    int64_t makespan_us = 0;
    int64_t span_us = 0;
    double peak = 0;  ///< of the fullest rank, in microbatches of a whole stage
};

double peak_microbatches(const Schedule& schedule) {
    const std::vector<int> peaks = peak_chunks(schedule);
    return static_cast<double>(*std::max_element(peaks.begin(), peaks.end())) * schedule.ranks /
           schedule.stages;
}

Result simulated(std::string name, const PublishedRow& row, const Schedule& schedule,
                 const TableCosts& costs) {
    const PublishedCosts model(costs);
    const auto programs = lower(schedule, published_sizes(row, schedule.stages), model);
    const TimelineSummary summary = simulate(programs, model).summary;
    return {std::move(name), summary.makespan_ns, summary.largest_span_ns,
            peak_microbatches(schedule)};
}

/// Every family that can place these passes. Rows with whole vocabulary layers keep them where they
/// are, on the first and last rank, so only straight placements apply.
Result best_of_ours(const PublishedRow& row, const Result& own) {
    const bool sharded = row.mode() != VocabMode::none;
    std::vector<VocabMode> modes{VocabMode::none};
    if (sharded) modes = {VocabMode::one_barrier, VocabMode::two_barriers};
    struct Candidate {
        std::string name;
        Schedule schedule;
        TableCosts costs;
    };
    Candidate best;
    int64_t best_makespan = std::numeric_limits<int64_t>::max();
    for (const Generator& family : generators()) {
        if (family.placement != Placement::straight && !sharded) continue;
        if (family.placement == Placement::loop) continue;  // stage times by rank: V or straight
        const TableCosts costs = in_chunks(row.costs, family.chunks);
        for (const VocabMode mode : modes) {
            const int barriers = mode == VocabMode::one_barrier    ? 1
                                 : mode == VocabMode::two_barriers ? 2
                                                                   : 0;
            const int limit =
                family.memory_limit ? static_cast<int>(own.peak - barriers) * family.chunks : 0;
            try {
                const Schedule schedule = generate(family.name, {.ranks = row.ranks,
                                                                 .microbatches = row.microbatches,
                                                                 .vocab_mode = mode,
                                                                 .vocab_size = row.vocab,
                                                                 .memory_limit = limit,
                                                                 .costs = pass_costs(costs)});
                if (peak_microbatches(schedule) > own.peak) continue;
                const int64_t makespan = time_passes(schedule, pass_costs(costs)).makespan;
                if (makespan >= best_makespan) continue;
                best_makespan = makespan;
                best = {std::string(family.name) + " " + std::string(to_string(mode)), schedule,
                        costs};
            } catch (const UsageError&) {
                continue;  // not with this limit
            }
        }
    }
    return simulated(best.name, row, best.schedule, best.costs);
}

void print(const std::string& path) {
    std::printf("%-10s %7s  %10s %10s %7s  %4s | %-26s %10s %7s %7s %5s\n", "# method", "vocab",
                "measured", "simulated", "ratio", "peak", "best of ours", "simulated", "ratio",
                "span", "peak");
    for (const PublishedRow& row : read_published_rows(path)) {
        const Result own = simulated(row.method, row, row.schedule(), row.costs);
        const Result best = best_of_ours(row, own);
        const auto ratio = [](int64_t a, int64_t b) {
            return static_cast<double>(a) / static_cast<double>(b);
        };
        std::printf(
            "%-10s %7ld  %10.1f %10.1f %7.4f  %4.0f | %-26s %10.1f %7.4f %7.4f %5.1f\n",
            row.method.c_str(), row.vocab, static_cast<double>(row.iteration_us) / 1e3,
            static_cast<double>(own.makespan_us) / 1e3, ratio(own.makespan_us, row.iteration_us),
            own.peak, best.name.c_str(), static_cast<double>(best.makespan_us) / 1e3,
            ratio(best.makespan_us, own.makespan_us), ratio(best.span_us, own.span_us), best.peak);
        std::fflush(stdout);
    }
    std::printf(
        "# times in ms; ratio: simulated / measured, and ours / the row's own method simulated\n"
        "# peak: activations of the fullest rank, in microbatches of 1/p of the model\n");
}

}  // namespace

int main(int argc, char** argv) {
    try {
        print(argc > 1 ? argv[1] : VOCABPIPE_PUBLISHED_PASS_TIMES);
    } catch (const Error& error) {
        std::fprintf(stderr, "bench_published: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
    return 0;
}
