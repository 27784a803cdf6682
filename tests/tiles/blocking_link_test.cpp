// SPDX-License-Identifier: Apache-2.0
// When pieces of a blocking link leave, and what its waits wait for.
#include "src/runtime/tile_link/blocking_link.hpp"

#include "src/runtime/tile_link/host.hpp"
#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/world.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int kMembers = 3;

/// A byte to each member and from each, in one piece.
struct Bytes {
    std::vector<std::byte> out, in = std::vector(kMembers, std::byte{0});
    std::vector<int64_t> end{1};
    std::vector<TileLink::Outgoing> send;
    std::vector<TileLink::Incoming> receive;

    explicit Bytes(int rank) : out(kMembers, static_cast<std::byte>(rank + 1)) {
        for (size_t m = 0; m < kMembers; ++m) {
            send.push_back({std::span(&out[m], 1), end});
            receive.push_back({std::span(&in[m], 1), end});
        }
    }
};

void release_all(const TileLink& link, TileLink::Operation& operation) {
    for (int i = 0; i < kMembers; ++i) operation.release(link.to(i), 1);
}

/// Rank 0 has a blocking link, the others have none.
void run_with_blocking_link(
    const std::function<void(Communicator&, TileLink&, TileLink::Operation&)>& of_rank) {
    World::threads(kMembers, {.timeout_seconds = 30}).run([&](Communicator& c) {
        std::unique_ptr<TileLink> link =
            make_host_tile_link(c.transport(), c.wait_options(), {.ranks = {0, 1, 2}});
        if (c.rank() == 0) link = make_blocking_link(std::move(link));
        EXPECT_EQ(link->rank(), c.rank());
        EXPECT_EQ(link->size(), kMembers);
        Bytes bytes(c.rank());
        TileLink::Operation operation = link->all_to_all(bytes.send, bytes.receive, {"bytes"});
        of_rank(c, *link, operation);
        operation.finish();
        EXPECT_EQ(bytes.in, (std::vector{std::byte{1}, std::byte{2}, std::byte{3}}));
    });
}

TEST(BlockingLinks, SendNothingBeforeTheyWait) {
    run_with_blocking_link([](Communicator& c, TileLink& link, TileLink::Operation& operation) {
        release_all(link, operation);
        c.barrier();
        for (int i = 0; c.rank() != 0 && i < 100; ++i) {
            EXPECT_FALSE(operation.test(0, 1)) << "rank 0 has not waited";
        }
        c.barrier();
        EXPECT_EQ(operation.wait(link.from(1), 1), 1);
    });
}

TEST(BlockingLinks, WaitForAllMembersWhereOneIsAskedFor) {
    std::atomic<bool> last_released = false;
    run_with_blocking_link([&](Communicator& c, TileLink& link, TileLink::Operation& operation) {
        if (c.rank() == 2) {
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            last_released = true;
        }
        release_all(link, operation);
        if (c.rank() != 0) return;
        EXPECT_EQ(operation.wait(1, 1), 1);
        EXPECT_TRUE(last_released);
        EXPECT_TRUE(operation.test(0, 1));
    });
}

TEST(BlockingLinks, FinishWithoutAWait) {
    run_with_blocking_link([](Communicator&, TileLink& link, TileLink::Operation& operation) {
        release_all(link, operation);
    });
}

}  // namespace
}  // namespace vocabpipe::testing
