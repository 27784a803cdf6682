// SPDX-License-Identifier: Apache-2.0
// Chooses a tenth of 2,000 samples on two ranks, threads of this process. The samples lie on a ring
// in 40 clusters, and are similar to those beside them in their cluster; what a sample is worth by
// itself is made up. Needs the component `select` only.
//
//   select_samples
#include <cstdio>
#include <vector>

#include "vocabpipe/select_samples.hpp"

using namespace vocabpipe;

constexpr int64_t kSamples = 2000;
constexpr int64_t kCluster = 50;
constexpr int64_t kReach = 5;  // neighbors on either side

int64_t cluster_of(int64_t sample) {
    return sample / kCluster;
}

int main() {
    std::vector<WeightedEdge> edges;
    std::vector<double> utilities;
    for (int64_t v = 0; v < kSamples; ++v) {
        utilities.push_back(0.1 + 0.8 * static_cast<double>(v * 7919 % kSamples) / kSamples);
        for (int64_t w = v + 1; w <= v + kReach && w < kSamples; ++w) {
            if (cluster_of(v) != cluster_of(w)) continue;
            edges.push_back(
                {.source = v, .destination = w, .weight = 1 - 0.1 * static_cast<double>(w - v)});
        }
    }
    const SampleGraph graph(kSamples, edges);
    const SampleUtilities worth(utilities);
    const SelectSamplesOptions options{
        .fraction = Fraction{.numerator = 1, .denominator = 10}, .partitions = 4, .adaptive = true};

    World world = World::threads(2);
    return world.run_program("select_samples", [&](Communicator& rank) {
        const SampleSubset subset = select_samples(rank, graph, worth, options);
        if (rank.rank() != 0) return;
        std::printf("%lld of %lld samples, value %.3f\n", static_cast<long long>(subset.size),
                    static_cast<long long>(kSamples), subset.objective);
        if (subset.certificate && subset.certificate->bound) {
            const double bound = *subset.certificate->bound;
            std::printf(
                "no choice of as many has more than %.3f, so this has at least %.1f %% of the "
                "best\n",
                bound, 100 * subset.objective / bound);
        }
    });
}
