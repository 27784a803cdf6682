// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/timed_team.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <random>
#include <span>

namespace vocabpipe {

namespace {

using Clock = std::chrono::steady_clock;

template <typename Number>
std::vector<Number> of_all_ranks(Communicator& world, Number mine) {
    std::vector<Number> numbers;
    for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
        std::memcpy(&numbers.emplace_back(), bytes.data(), sizeof(Number));
    }
    return numbers;
}

}  // namespace

double largest_of_ranks(Communicator& world, double mine) {
    return std::ranges::max(of_all_ranks(world, mine));
}

int64_t sum_of_ranks(Communicator& world, int64_t mine) {
    int64_t sum = 0;
    for (const int64_t number : of_all_ranks(world, mine)) sum += number;
    return sum;
}

double timed_rounds(Communicator& world, int rounds, const std::function<void()>& work) {
    double best = std::numeric_limits<double>::infinity();
    for (int round = 0; round <= rounds; ++round) {
        world.barrier();
        const auto begin = Clock::now();
        work();
        const double seconds =
            largest_of_ranks(world, std::chrono::duration<double>(Clock::now() - begin).count());
        if (round > 0) best = std::min(best, seconds);  // the first one warms up
    }
    return best;
}

std::vector<float> random_floats(int64_t count, int seed) {
    std::minstd_rand random(static_cast<unsigned>(seed + 1));
    std::uniform_real_distribution<float> numbers(-1, 1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = numbers(random);
    return values;
}

int64_t differing(const std::vector<float>& a, const std::vector<float>& b) {
    int64_t count = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        count += std::memcmp(&a[i], &b[i], sizeof a[i]) != 0 ? 1 : 0;
    }
    return count;
}

}  // namespace vocabpipe
