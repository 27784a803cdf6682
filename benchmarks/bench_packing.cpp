// SPDX-License-Identifier: Apache-2.0
// Packing documents into sequences: time, and the rows that are lost to padding.
//
//     bench_packing [DOCUMENTS]          default: 10 million
//
// Lengths are drawn from log-normal distributions: most documents are short, a few are long.
//   chats  median 400 tokens, sigma 1.0: mean 660, one in a hundred above 4,100
//   pages  median 500 tokens, sigma 1.3: mean 1,160, one in a hundred above 10,300
// "padded" is what is lost where every document has a sequence of its own (cut where it is longer).
#include "src/train/data/best_fit.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace {

using namespace vocabpipe;

struct Distribution {
    const char* name;
    double median, sigma;
};

/// Rows of the fragments of `documents`, no longer than `seq_length` (PackedSamples).
std::vector<int32_t> fragments_of(const Distribution& d, int64_t documents, int32_t seq_length) {
    std::mt19937_64 random(7);
    std::lognormal_distribution<double> length(std::log(d.median), d.sigma);
    std::vector<int32_t> fragments;
    for (int64_t i = 0; i < documents; ++i) {
        auto rows = static_cast<int64_t>(length(random));
        for (; rows > 0; rows -= seq_length) {
            fragments.push_back(static_cast<int32_t>(std::min<int64_t>(rows, seq_length)));
        }
    }
    return fragments;
}

void measure(const Distribution& d, int64_t documents, int32_t seq_length) {
    const std::vector<int32_t> fragments = fragments_of(d, documents, seq_length);
    const auto begin = std::chrono::steady_clock::now();
    const Bins bins = best_fit(fragments, std::array{seq_length});
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const auto rows =
        static_cast<double>(std::accumulate(fragments.begin(), fragments.end(), int64_t{0}));
    const auto lost = [&](double sequences) { return 100 * (1 - rows / (sequences * seq_length)); };
    std::printf("%-8s %9lld %10d %10zu %10lld %9.2f %11.3f %9.1f\n", d.name,
                static_cast<long long>(documents), seq_length, fragments.size(),
                static_cast<long long>(bins.count()), seconds.count(),
                lost(static_cast<double>(bins.count())),
                lost(static_cast<double>(fragments.size())));
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const int64_t documents = argc > 1 ? std::atoll(argv[1]) : 10'000'000;
    std::printf(
        "lengths  documents seq_length     fragments  sequences   seconds  padding, %% padded, "
        "%%\n");
    for (const Distribution& d :
         {Distribution{"chats", 400, 1.0}, Distribution{"pages", 500, 1.3}}) {
        for (const int32_t seq_length : {2048, 8192, 131072}) measure(d, documents, seq_length);
    }
}
