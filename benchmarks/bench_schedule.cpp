// SPDX-License-Identifier: Apache-2.0
// The cost of planning a step: a schedule is made, checked, lowered and simulated, on one core.
//
//     bench_schedule [NAME P M V MODE]       default: the sizes of docs/performance.md
//     bench_schedule world P D M             only lowering, of D replicas of 1f1b two_barriers
//
// One line per case and phase: seconds of CPU time (one thread; the fastest of three runs), passes
// or actions per second. One line per world: seconds of CPU time, and the peak memory of a process
// that does only this.
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/validate.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace vocabpipe;

struct Case {
    std::string family;
    int ranks;
    int microbatches;
    int chunks;
    VocabMode mode;
};

/// Times of a bf16 transformer of 8192 tokens per microbatch and hidden size 4096, in ns.
TableCosts costs_of(const Schedule& schedule) {
    TableCosts costs =
        TableCosts::uniform(schedule.ranks, schedule.stages, 11'000'000, 22'000'000, 1'500'000);
    costs.latency_ns = 5'000;
    costs.bytes_per_ns = 150;
    costs.local_bytes_per_ns = 1'500;
    return costs;
}

StepSizes sizes_of(const Schedule& schedule) {
    StepSizes sizes;
    sizes.tokens = 8192;
    sizes.hidden = 4096;
    sizes.dtype = DType::bf16;
    sizes.report_bytes = 64;
    const int64_t boundary = sizes.tokens * sizes.hidden * 2;
    sizes.stages.assign(static_cast<size_t>(schedule.stages), {.saved = 17 * boundary,
                                                               .for_weight = 6 * boundary,
                                                               .forward_workspace = boundary,
                                                               .backward_workspace = 2 * boundary});
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        sizes.shards.push_back({.exp_logits = sizes.tokens * schedule.output.rows(rank) * 2});
    }
    return sizes;
}

/// Splits `elements` among the replicas in whole cache lines.
GradientBucket bucket_of(GradientBucket::Of of, int stage, int64_t elements, int replicas) {
    GradientBucket bucket{.of = of, .stage = stage, .first = {}};
    for (int i = 0; i <= replicas; ++i) bucket.first.push_back(elements * i / replicas / 16 * 16);
    return bucket;
}

/// One layer per stage, and the vocabulary shards of its rank.
void add_buckets(StepSizes& sizes, const Schedule& schedule, int replicas) {
    sizes.replicas = replicas;
    if (replicas == 1) return;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        using enum GradientBucket::Of;
        const int64_t layer = 12 * sizes.hidden * sizes.hidden;
        sizes.buckets.push_back(
            {bucket_of(stage, rank, layer, replicas),
             bucket_of(input, 0, schedule.input.rows(rank) * sizes.hidden, replicas),
             bucket_of(output, 0, schedule.output.rows(rank) * sizes.hidden, replicas)});
    }
}

/// CPU time, so that other work on the machine does not count.
double seconds(const std::function<void()>& work) {
    const std::clock_t begin = std::clock();
    work();
    return std::max(1e-6, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
}

void run(const Case& c) {
    constexpr int kRuns = 3;
    double generating = 1e9;
    double validating = 1e9;
    double lowering = 1e9;
    double simulating = 1e9;
    double total = 1e9;
    size_t passes = 0;
    size_t actions = 0;
    for (int i = 0; i < kRuns; ++i) {
        Schedule schedule;
        std::vector<Program> programs;
        Simulation simulation;
        const double g = seconds([&] {
            schedule = make_schedule(c.family, {.ranks = c.ranks,
                                                .microbatches = c.microbatches,
                                                .vocab_mode = c.mode,
                                                .vocab_size = 256'000,
                                                .rule = {.chunks = c.chunks},
                                                .costs = PassCosts::uniform(11, 22, 2)});
        });
        const TableCosts costs = costs_of(schedule);
        const StepSizes sizes = sizes_of(schedule);
        const double v = seconds([&] { validate(schedule); });
        const double l = seconds([&] { programs = lower(schedule, sizes, costs); });
        const double s = seconds([&] { simulation = simulate(programs, costs); });
        passes = actions = 0;
        for (const Program& program : programs) {
            passes += program.passes.size();
            actions += program.actions.size();
        }
        generating = std::min(generating, g);
        validating = std::min(validating, v);
        lowering = std::min(lowering, l);
        simulating = std::min(simulating, s);
        total = std::min(total, g + v + l + s);
    }
    const auto line = [](const char* phase, double time, size_t count, const char* what) {
        std::printf("  %-9s %7.3f s   %6.2f M %s/s\n", phase, time,
                    static_cast<double>(count) / time / 1e6, what);
    };
    std::printf("%s p=%d m=%d v=%d %s: %zu passes, %zu actions\n", c.family.c_str(), c.ranks,
                c.microbatches, c.chunks, std::string(to_string(c.mode)).c_str(), passes, actions);
    line("generate", generating, passes, "passes");
    line("validate", validating, passes, "passes");
    line("lower", lowering, actions, "actions");
    line("simulate", simulating, actions, "actions");
    line("together", total, actions, "actions");
}

void lower_world(int ranks, int replicas, int microbatches) {
    const Schedule schedule = make_schedule("1f1b", {.ranks = ranks,
                                                     .microbatches = microbatches,
                                                     .vocab_mode = VocabMode::two_barriers,
                                                     .vocab_size = 256'000,
                                                     .costs = PassCosts::uniform(11, 22, 2)});
    TableCosts costs = costs_of(schedule);
    costs.slices = replicas;
    StepSizes sizes = sizes_of(schedule);
    add_buckets(sizes, schedule, replicas);
    uint64_t hash = 0;
    const double time = seconds([&] { hash = lower_world(schedule, sizes, costs).hash(); });
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("world p=%d d=%d m=%d: %7.3f s %8.1f MiB, hash %016llx\n", ranks, replicas,
                microbatches, time, static_cast<double>(usage.ru_maxrss) / 1024,
                static_cast<unsigned long long>(hash));
    std::fflush(stdout);
}

/// Runs in a process of its own, for its peak memory.
void measure_world(int ranks, int replicas, int microbatches) {
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        lower_world(ranks, replicas, microbatches);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) {
        throw std::runtime_error("a process that lowers a world failed");
    }
}

}  // namespace

int main(int count, char** arguments) {
    try {
        if (count == 5 && std::string(arguments[1]) == "world") {
            measure_world(std::stoi(arguments[2]), std::stoi(arguments[3]),
                          std::stoi(arguments[4]));
            return 0;
        }
        if (count == 1) {
            for (const int replicas : {1, 8, 64}) measure_world(64, replicas, 128);
            run({"1f1b", 64, 1024, 1, VocabMode::one_barrier});
            run({"interleaved", 64, 256, 4, VocabMode::none});
            run({"interleaved", 64, 256, 4, VocabMode::one_barrier});
            return 0;
        }
        if (count != 6) throw UsageError("expects NAME P M V MODE, world P D M, or nothing");
        run({arguments[1], std::stoi(arguments[2]), std::stoi(arguments[3]),
             std::stoi(arguments[4]), vocab_mode_from(arguments[5])});
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_schedule: %s\n", error.what());
        return 2;
    }
    return 0;
}
