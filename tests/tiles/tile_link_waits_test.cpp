// SPDX-License-Identifier: Apache-2.0
// How long a wait of a tile link goes on, and what it says at its end.
#include "src/runtime/tile_link/host.hpp"
#include "src/runtime/transport/transport.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::StartsWith;
using ::testing::ThrowsMessage;

/// Another transport, whose messages are seen in pairs: after two of them a look sees none.
class SeenInPairs final : public Transport {
public:
    explicit SeenInPairs(Transport& inner) : inner_(inner) {}
    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int size() const override { return inner_.size(); }
    [[nodiscard]] Ticket start(const Transfer& transfer) override { return inner_.start(transfer); }
    [[nodiscard]] bool test(Ticket ticket) override {
        if (seen_ == 2) {
            seen_ = 0;
            return false;
        }
        const bool done = inner_.test(ticket);
        if (done) ++seen_;
        return done;
    }
    void cancel() noexcept override { inner_.cancel(); }
    void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

private:
    Transport& inner_;
    int seen_ = 0;
};

TEST(TileLinkWaits, GoOnAsLongAsEveryLookFindsAPiece) {
    constexpr int kManyPieces = 1000;
    std::vector<int64_t> ends(kManyPieces);
    std::iota(ends.begin(), ends.end(), 1);
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& c) {
        const bool sends = c.rank() == 1;
        SeenInPairs pairs(c.transport());
        const WaitOptions no_patience{.timeout_seconds = 0};
        const auto link =
            make_host_tile_link(sends ? c.transport() : pairs,
                                sends ? c.wait_options() : no_patience, {.ranks = {0, 1}});
        std::vector<std::byte> bytes(kManyPieces, sends ? std::byte{7} : std::byte{0});
        std::vector<TileLink::Outgoing> send(2);
        std::vector<TileLink::Incoming> receive(2);
        if (sends) {
            send[0] = {bytes, ends};
        } else {
            receive[1] = {bytes, ends};
        }
        TileLink::Operation op = link->all_to_all(send, receive, {"hop"});
        if (sends) op.release(0, kManyPieces);
        c.barrier();  // all pieces are there, and rank 0 has not looked
        if (!sends) {
            EXPECT_EQ(op.wait(1, kManyPieces), kManyPieces);
        }
        op.finish();
        EXPECT_EQ(bytes, std::vector(kManyPieces, std::byte{7}));
    });
}

TEST(TileLinkWaits, NameThePieceThatNobodyTakes) {
    const auto run = [] {
        World::threads(2, {.timeout_seconds = 0.1}).run([](Communicator& c) {
            if (c.rank() == 1) return;
            const auto link =
                make_host_tile_link(c.transport(), c.wait_options(), {.ranks = {0, 1}});
            const std::vector<int64_t> ends{10, 20};
            const std::vector<std::byte> bytes(20);
            const std::vector<TileLink::Outgoing> send{{}, {bytes, ends}};
            const std::vector<TileLink::Incoming> receive(2);
            TileLink::Operation op = link->all_to_all(send, receive, {"hop"});
            op.release(1, 2);
            op.finish();
        });
    };
    EXPECT_THAT(run,
                ThrowsMessage<CommunicationError>(StartsWith(
                    "rank 0: hop: waits until it is rid of piece 0 of member 1 (rank 1) for")));
}

}  // namespace
}  // namespace vocabpipe::testing
