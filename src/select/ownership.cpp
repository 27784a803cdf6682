// SPDX-License-Identifier: Apache-2.0
#include "src/select/ownership.hpp"
#include "src/runtime/gathered.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

namespace vocabpipe {

Ownership::Ownership(int64_t nodes, int ranks) {
    for (int64_t rank = 0; rank <= ranks; ++rank) {
        begins_.push_back(rank * (nodes / ranks) + std::min(rank, nodes % ranks));
    }
    largest_ = count(0);
}

Ownership::Ownership(std::vector<int64_t> begins) : begins_(std::move(begins)) {
    for (int rank = 0; rank < ranks(); ++rank) largest_ = std::max(largest_, count(rank));
}

void add_over_ranks(Communicator& world, std::vector<uint64_t>& values) {
    if (world.size() == 1) return;
    const auto all = world.all_gather(std::as_bytes(std::span(values)));
    std::ranges::fill(values, 0);
    for (const std::vector<std::byte>& one : all) {
        for (size_t i = 0; i < values.size(); ++i) {
            uint64_t value = 0;
            std::memcpy(&value, one.data() + i * sizeof value, sizeof value);
            values[i] += value;
        }
    }
}

int64_t sum_over_ranks(Communicator& world, int64_t value) {
    int64_t sum = 0;
    for (const int64_t one : gathered_values(world, value)) sum += one;
    return sum;
}

WideSum wide_sum_over_ranks(Communicator& world, WideSum value) {
    WideSum sum = 0;
    for (const WideSum one : gathered_values(world, value)) sum += one;
    return sum;
}

int64_t largest_over_ranks(Communicator& world, int64_t value) {
    return std::ranges::max(gathered_values(world, value));
}

int64_t sum_of_ranks_before(Communicator& world, int64_t value) {
    const std::vector<int64_t> values = gathered_values(world, value);
    int64_t sum = 0;
    for (int rank = 0; rank < world.rank(); ++rank) sum += values[static_cast<size_t>(rank)];
    return sum;
}

}  // namespace vocabpipe
