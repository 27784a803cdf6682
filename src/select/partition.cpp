// SPDX-License-Identifier: Apache-2.0
#include "src/select/partition.hpp"

#include "src/select/radix_select.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kStatisticsAtOnce = 256;

/// hash_of(seed, round, id) is splitmix64 of this xor the id.
uint64_t seed_of_round(uint64_t seed, int64_t round) {
    return splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(round));
}

/// The hashes of the open samples at these places of the descending order; places count from 1.
std::vector<uint64_t> hashes_at(SelectContext& context, const SelectionState& state, uint64_t seed,
                                std::vector<int64_t> places) {
    RadixSelect select(std::move(places));
    while (!select.done()) {
        state.for_each_open(
            [&](int64_t v) { select.add(splitmix64(seed ^ static_cast<uint64_t>(v))); });
        select.next_digit(context.world);
    }
    return select.results();
}

}  // namespace

uint64_t Partition::bytes(int64_t parts) {
    const auto begins = static_cast<uint64_t>(parts) * sizeof(uint64_t);
    // Counters, the ranks' counters to be added, and the buffers to gather them.
    return begins +
           4 * RadixSelect::bytes(static_cast<uint64_t>(std::min(parts, kStatisticsAtOnce)));
}

Partition::Partition(SelectContext& context, const SelectionState& state, int64_t parts,
                     int64_t open, int64_t round)
    : seed_(seed_of_round(context.seed, round)) {
    for (int64_t part = 1; part < parts;) {
        std::vector<int64_t> places;
        for (; part < parts && std::ssize(places) < kStatisticsAtOnce; ++part) {
            places.push_back(open - static_cast<int64_t>(WideSum{part} * open / parts));
        }
        context.report("parts", part, parts);
        for (const uint64_t hash : hashes_at(context, state, seed_, std::move(places))) {
            begins_.push_back(hash);
        }
    }
}

void keep_at_random(SelectContext& context, SelectionState& state, int64_t count, int64_t open,
                    int64_t round) {
    if (count >= open) return;
    const uint64_t seed = seed_of_round(context.seed, round);
    const uint64_t first_out = hashes_at(context, state, seed, {open - count}).front();
    for (int64_t v = state.first(); v < state.last(); ++v) {
        if (state.is_open(v) && splitmix64(seed ^ static_cast<uint64_t>(v)) >= first_out) {
            state.decide(v, Decision::discarded);
        }
    }
}

}  // namespace vocabpipe
