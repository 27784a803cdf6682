// SPDX-License-Identifier: Apache-2.0
// bench_published: iteration times simulated from published pass times, next to the measured ones,
// and the times that other schedules would need with the same passes.
//
//   build/bin/bench_published [FILE]
#include "benchmarks/published_rows.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/simulate.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

namespace {

using namespace vocabpipe;

struct Result {
    std::string name;
    int64_t makespan_us = 0;
    double microbatches = 0;  ///< activations, in whole stages, on the rank that holds most
    double gigabytes = 0;     ///< the same in bytes, with the memory that W needs after I
};

Result simulated(std::string name, const PublishedRow& row, const Schedule& schedule,
                 const TableCosts& costs) {
    const PublishedCosts model(costs);
    const auto programs = lower(schedule, published_sizes(row, schedule.stages), model);
    const Simulation simulation = simulate(programs, model);
    const std::vector<int> peaks = peak_chunks(schedule);
    uint64_t bytes = 0;
    for (const RankMemory& memory : simulation.memory) {
        bytes = std::max(bytes, memory.largest[static_cast<size_t>(MemoryUse::activations)]);
    }
    return {std::move(name), simulation.summary.makespan_ns,
            static_cast<double>(*std::max_element(peaks.begin(), peaks.end())) * schedule.ranks /
                schedule.stages,
            static_cast<double>(bytes) / 1e9};
}

struct BestOfOurs {
    Result by_count, by_bytes;  ///< at most as many activations, counted in stages and in bytes
};

/// Every family that can place these passes. Rows with whole vocabulary layers keep them on the
/// first and last rank, so only straight placements apply.
BestOfOurs best_of_ours(const PublishedRow& row, const Result& own) {
    const bool sharded = row.mode() != VocabMode::none;
    std::vector<VocabMode> modes{VocabMode::none};
    if (sharded) modes = {VocabMode::one_barrier, VocabMode::two_barriers};
    BestOfOurs best;
    const auto take = [](Result& into, const Result& result) {
        if (into.makespan_us == 0 || result.makespan_us < into.makespan_us) into = result;
    };
    for (const Generator& family : generators()) {
        if (family.placement != Placement::straight && !sharded) continue;
        if (family.placement == Placement::loop) continue;  // stage times by rank: V or straight
        const TableCosts costs = in_chunks(row.costs, family.chunks);
        for (const VocabMode mode : modes) {
            // Families with a limit: tries the largest, and smaller ones, which save bytes.
            const int most =
                static_cast<int>(own.microbatches - extra_microbatches(mode)) * family.chunks;
            for (int limit = family.memory_limit ? most : 0; limit >= 0; limit -= family.chunks) {
                try {
                    const Schedule schedule =
                        make_schedule(family.name, {.ranks = row.ranks,
                                                    .microbatches = row.microbatches,
                                                    .vocab_mode = mode,
                                                    .vocab_size = row.vocab,
                                                    .rule = {.memory_limit = limit},
                                                    .costs = pass_costs(costs)});
                    const Result result =
                        simulated(std::string(family.name) + " " + std::string(to_string(mode)),
                                  row, schedule, costs);
                    if (result.microbatches <= own.microbatches) take(best.by_count, result);
                    if (result.gigabytes <= own.gigabytes) take(best.by_bytes, result);
                } catch (const UsageError&) {
                    break;  // infeasible with this limit, and so with smaller ones
                }
                if (!family.memory_limit || limit <= family.chunks) break;
            }
        }
    }
    return best;
}

void print(const std::string& path) {
    std::printf("%-10s %6s %9s %9s %6s %4s %5s | %-22s %6s %4s | %-22s %6s %5s\n", "# method",
                "vocab", "measured", "simulated", "ratio", "mb", "GB", "ours, by count", "ratio",
                "mb", "ours, by bytes", "ratio", "GB");
    std::map<std::string, std::pair<double, double>> errors;  // by method: least and most ratio
    for (const PublishedRow& row : read_published_rows(path)) {
        const Result own = simulated(row.method, row, row.schedule(), row.costs);
        const BestOfOurs best = best_of_ours(row, own);
        const auto ratio = [](int64_t a, int64_t b) {
            return static_cast<double>(a) / static_cast<double>(b);
        };
        std::printf(
            "%-10s %6ld %9.1f %9.1f %6.4f %4.0f %5.2f | %-22s %6.4f %4.1f | %-22s %6.4f %5.2f\n",
            row.method.c_str(), row.vocab, static_cast<double>(row.iteration_us) / 1e3,
            static_cast<double>(own.makespan_us) / 1e3, ratio(own.makespan_us, row.iteration_us),
            own.microbatches, own.gigabytes, best.by_count.name.c_str(),
            ratio(best.by_count.makespan_us, own.makespan_us), best.by_count.microbatches,
            best.by_bytes.name.c_str(), ratio(best.by_bytes.makespan_us, own.makespan_us),
            best.by_bytes.gigabytes);
        std::fflush(stdout);
        const double own_ratio = ratio(own.makespan_us, row.iteration_us);
        auto& [least, most] = errors.try_emplace(row.method, own_ratio, own_ratio).first->second;
        least = std::min(least, own_ratio);
        most = std::max(most, own_ratio);
    }
    for (const auto& [method, range] : errors) {
        std::printf("# %-10s simulated %.4f .. %.4f of the measured\n", method.c_str(), range.first,
                    range.second);
    }
    std::printf(
        "# times in ms; ratio: simulated / measured, and ours / the row's own method simulated\n"
        "# mb: activations of the fullest rank, in microbatches of 1/p of the model\n"
        "# GB: the same in bytes, 34 N h per layer until W or B, and 22 N h more from I to W\n");
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
