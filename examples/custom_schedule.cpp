// SPDX-License-Identifier: Apache-2.0
// A custom schedule in code: lists what every rank runs, in which order; communication, buffers and
// the vocabulary passes are inferred.
//
//   build/bin/custom_schedule
#include <cstdio>
#include <exception>
#include <vector>

#include "vocabpipe/insert_vocabulary.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/user_schedule.hpp"

using namespace vocabpipe;

namespace {

constexpr int kRanks = 4;
constexpr int kMicrobatches = 8;
constexpr int64_t kVocabulary = 32000;

// 1F1B with the backward in two halves: I goes on to the next rank at once; up to kWaiting W are
// deferred and fill the end of the step, where 1F1B idles.
std::vector<Pass> passes_of(int rank) {
    constexpr size_t kWaiting = 2;
    const auto stage = static_cast<uint16_t>(rank);
    std::vector<Pass> list;
    std::vector<Pass> waiting;
    uint32_t forwards = 0;
    const auto forward = [&] {
        if (forwards < kMicrobatches) list.push_back({Op::F, stage, forwards++});
    };
    for (int i = 0; i < kRanks - rank; ++i) forward();
    for (uint32_t j = 0; j < kMicrobatches; ++j) {
        list.push_back({Op::I, stage, j});
        waiting.push_back({Op::W, stage, j});
        const bool may_wait = forwards < kMicrobatches && waiting.size() <= kWaiting;
        if (!may_wait) {
            list.push_back(waiting.front());
            waiting.erase(waiting.begin());
        }
        forward();
    }
    list.insert(list.end(), waiting.begin(), waiting.end());
    return list;
}

/// Bytes per microbatch; a real trainer asks its model (StageModule::bytes).
StepSizes example_sizes(const Schedule& schedule) {
    StepSizes sizes{.tokens = 2048, .hidden = 1024, .dtype = DType::bf16};
    const int64_t boundary = sizes.tokens * sizes.hidden * 2;
    sizes.stages.assign(static_cast<size_t>(schedule.stages),
                        {.saved = 34 * boundary, .for_weight = 8 * boundary});
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        sizes.shards.push_back({.exp_logits = sizes.tokens * schedule.output.rows(rank) * 2});
    }
    return sizes;
}

}  // namespace

int main() try {
    std::vector<std::vector<Pass>> passes;
    for (int rank = 0; rank < kRanks; ++rank) passes.push_back(passes_of(rank));
    const Schedule base = user_schedule(std::move(passes));  // infers the rest and validates

    // Microseconds: F 6000, I and W 6000 each, S and T 900.
    const auto pass_costs = PassCosts::uniform(6000, 12000, 900);
    std::printf("%-14s %10s %10s %12s\n", "vocab mode", "makespan", "bubble", "peak, rank 0");
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        const Schedule schedule =
            insert_vocabulary(base, {.mode = mode, .vocab_size = kVocabulary, .costs = pass_costs});
        const auto costs = TableCosts::uniform(kRanks, kRanks, 6000, 12000, 900);
        const std::vector<Program> programs = lower(schedule, example_sizes(schedule), costs);
        const Simulation simulation = simulate(programs, costs);  // lower() proved: no deadlock
        std::printf("%-14s %10lld %8.1f %% %8.0f MiB\n", to_string(mode).data(),
                    static_cast<long long>(simulation.summary.makespan_ns),
                    100 * simulation.summary.bubble,
                    static_cast<double>(simulation.peak_bytes[0]) / (1 << 20));
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "custom_schedule: error: %s\n", error.what());
    return 1;
}
