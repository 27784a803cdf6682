// SPDX-License-Identifier: Apache-2.0
// The order of microbatches of different lengths: what a step gains by it, and what finding it
// takes. Every step draws its lengths from 8192, 6144, 4096 and 2048 tokens in the shares of the
// chapters of the King James Bible in bytes. "random" is the step whose microbatches come as they
// are drawn, "long first" has them sorted, both over the step in the chosen order
// (order_microbatches()), as means over the steps.
//
//     bench_lengths [STEPS]          default: 20
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/microbatch_order.hpp"
#include "vocabpipe/pass_times.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

using namespace vocabpipe;

constexpr int kRanks = 8;

/// Costs of a transformer in which attention takes 15 % of a layer's time at 8192 tokens.
PassCosts costs_of_lengths() {
    constexpr double kAttention = 0.15;
    PassCosts costs = PassCosts::uniform(120'000, 240'000, 20'000);
    for (const double tokens : {0.75, 0.5, 0.25}) {
        const double layers = tokens * (1 - kAttention + kAttention * tokens);
        costs.lengths.shorter.push_back(LengthShares::of(layers, tokens, layers));
    }
    return costs;
}

void measure(const char* family, int microbatches, int steps) {
    PassCosts costs = costs_of_lengths();
    const Schedule schedule = make_schedule(family, {.ranks = kRanks,
                                                     .microbatches = microbatches,
                                                     .vocab_mode = VocabMode::one_barrier,
                                                     .vocab_size = 128'256,
                                                     .costs = costs});
    const auto makespan = [&](const std::vector<int>& lengths) {
        costs.lengths.of_microbatch = lengths;
        return static_cast<double>(time_passes(schedule, costs).makespan);
    };
    std::mt19937 random(7);
    std::discrete_distribution<int> draw{75, 242, 458, 225};
    double as_drawn = 0, most = 0, long_first = 0, seconds = 0;
    for (int step = 0; step < steps; ++step) {
        std::vector<int> lengths(static_cast<size_t>(microbatches));
        for (int& length : lengths) length = draw(random);
        const auto begin = std::chrono::steady_clock::now();
        const std::vector<int> order = order_microbatches(schedule, costs, lengths);
        seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        const double chosen = makespan(order);
        as_drawn += makespan(lengths) / chosen / steps;
        most = std::max(most, makespan(lengths) / chosen);
        std::ranges::sort(lengths);
        long_first += makespan(lengths) / chosen / steps;
    }
    std::printf("%-12s %13d %8.3f %8.3f %12.3f %14.0f\n", family, microbatches, as_drawn, most,
                long_first, 1e3 * seconds / steps);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const int steps = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 20;
    std::printf("%d ranks     microbatches   random  at most   long first  ms to find it\n",
                kRanks);
    for (const char* family : {"1f1b", "interleaved", "zb-h1", "zb-v", "v-half", "gpipe"}) {
        for (const int microbatches : {16, 32}) measure(family, microbatches, steps);
    }
}
