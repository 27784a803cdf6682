// SPDX-License-Identifier: Apache-2.0
// Ranks of a team as threads, and memory in which they show what they leave undone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kernels/reference/elements.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "tests/support/serial_team.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {

/// Memory full of NaN; what is behind it must stay so.
class Poisoned {
public:
    Poisoned(Device& device, int64_t bytes)
        : size_(static_cast<size_t>(bytes)),
          memory_(device.allocate(size_ + kGuard, "a test's memory")) {
        poison();
    }
    ~Poisoned() {
        if (memory_.size() == 0) return;  // moved
        for (const std::byte byte : memory_.bytes().subspan(size_)) {
            EXPECT_EQ(byte, std::byte{0xff}) << "written behind " << size_ << " bytes";
        }
    }
    Poisoned(Poisoned&&) = default;
    Poisoned& operator=(Poisoned&&) = default;
    Poisoned(const Poisoned&) = delete;

    void poison() { std::ranges::fill(memory_.bytes(), std::byte{0xff}); }
    [[nodiscard]] Bytes bytes() const { return memory_.bytes().first(size_); }
    [[nodiscard]] std::vector<std::byte> copy() const { return {bytes().begin(), bytes().end()}; }

private:
    static constexpr size_t kGuard = 64;  // bytes
    size_t size_;
    DeviceMemory memory_;
};

inline std::vector<float> random_values(int64_t count, unsigned seed, float scale) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<float> value(-scale, scale);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = value(engine);
    return values;
}

inline void write(Tensor to, const std::vector<float>& values) {
    for (int64_t i = 0; i < to.size(); ++i) {
        kernels::reference::set(to, i / to.cols, i % to.cols, values[static_cast<size_t>(i)]);
    }
}

/// body(rank, link) on every rank of a SerialTeam: what tile links are to be like.
template <typename Body>
void on_serial_team(int ranks, const Body& body) {
    SerialTeam team(ranks);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            const auto link = team.link(rank);
            try {
                body(rank, link.get());
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
}

/// body(rank, link) on every rank of a world of threads, with tile links.
template <typename Body>
void on_linked_team(int ranks, const Body& body) {
    World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& c) {
        std::vector<int> everyone(static_cast<size_t>(ranks));
        std::iota(everyone.begin(), everyone.end(), 0);
        const auto link =
            make_host_tile_link(c.transport(), c.wait_options(), {.ranks = everyone, .poll = {}});
        body(c.rank(), link.get());
        c.barrier();
    });
}

}  // namespace vocabpipe::testing
