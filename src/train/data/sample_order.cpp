// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/sample_order.hpp"

#include <bit>
#include <stdexcept>

namespace vocabpipe {

namespace {

constexpr int kRounds = 8;

/// The finaliser of splitmix64.
constexpr uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

}  // namespace

SampleOrder::SampleOrder(int64_t samples_per_epoch, uint64_t seed, bool shuffle)
    : samples_(samples_per_epoch), seed_(seed), shuffle_(shuffle) {
    if (samples_per_epoch < 1) {
        throw std::invalid_argument("SampleOrder: samples_per_epoch must be at least 1");
    }
    const auto bits =
        static_cast<int>(std::bit_width(static_cast<uint64_t>(samples_per_epoch - 1)));
    half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

int64_t SampleOrder::operator()(int64_t index) const {
    if (index < 0) {
        throw std::out_of_range("SampleOrder: negative index");
    }
    const auto epoch = static_cast<uint64_t>(index / samples_);
    const auto samples = static_cast<uint64_t>(samples_);
    auto x = static_cast<uint64_t>(index % samples_);
    if (!shuffle_ || samples == 1) {
        return static_cast<int64_t>(x);
    }
    const uint64_t key = mix(mix(seed_) ^ epoch);
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    // A Feistel network permutes [0, 4^half_bits), less than four times the samples; repeating it
    // until the value is a sample keeps it a permutation.
    do {
        uint64_t left = x >> half_bits_;
        uint64_t right = x & mask;
        for (uint64_t round = 0; round < kRounds; ++round) {
            const uint64_t next = left ^ (mix(key ^ mix(right + (round << 56))) & mask);
            left = right;
            right = next;
        }
        x = left << half_bits_ | right;
    } while (x >= samples);
    return static_cast<int64_t>(x);
}

uint64_t derived_seed(uint64_t seed, uint64_t number) {
    return mix(mix(seed) + number);
}

}  // namespace vocabpipe
