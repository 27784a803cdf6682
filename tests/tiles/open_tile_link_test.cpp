// SPDX-License-Identifier: Apache-2.0
// Links that users open: several of them, and several operations of each, under way at once. One
// source, four programs: see test_world.hpp.
#include "src/runtime/tile_link/checks.hpp"
#include "tests/support/number_of_cases.hpp"
#include "tests/support/test_world.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tile_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace vocabpipe {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestWorld;

class OpenTileLink : public ::testing::TestWithParam<int> {
protected:
    [[nodiscard]] static TestWorld world() { return TestWorld(GetParam()); }
};

std::byte content(int from, int to, unsigned id, size_t i) {
    const auto mixed = (static_cast<uint32_t>(from) * 31u + static_cast<uint32_t>(to)) * 131u +
                       id * 7919u + static_cast<uint32_t>(i);
    return static_cast<std::byte>((mixed * 2654435761u) >> 24);
}

/// An operation with random pieces, which depend on `id` only, and what this rank has done of it.
struct Running {
    unsigned id;
    std::vector<std::vector<int64_t>> out_ends, in_ends;
    std::vector<Bytes> out, in;
    std::vector<int> released;
    std::unique_ptr<TileLink::Operation> operation;

    Running(TileLink& link, unsigned number) : id(number) {
        const int self = link.rank();
        std::mt19937 random(id);
        for (int from = 0; from < link.size(); ++from) {
            for (int to = 0; to < link.size(); ++to) {
                std::vector<int64_t> ends;
                int64_t at = 0;
                for (auto pieces = random() % 5; pieces > 0; --pieces) {
                    at += random() % 5 == 0 ? 0 : random() % (random() % 8 == 0 ? 90000 : 900);
                    ends.push_back(at);
                }
                if (from == self) out_ends.push_back(ends);
                if (to == self) in_ends.push_back(ends);
            }
        }
        std::vector<TileLink::Outgoing> send;
        std::vector<TileLink::Incoming> receive;
        for (int m = 0; m < link.size(); ++m) {
            const auto at = static_cast<size_t>(m);
            out.emplace_back(out_ends[at].empty() ? 0 : static_cast<size_t>(out_ends[at].back()));
            in.emplace_back(in_ends[at].empty() ? 0 : static_cast<size_t>(in_ends[at].back()));
            for (size_t i = 0; i < out[at].size(); ++i) out[at][i] = content(self, m, id, i);
        }
        for (size_t m = 0; m < out.size(); ++m) {
            send.push_back({out[m], out_ends[m]});
            receive.push_back({in[m], in_ends[m]});
        }
        released.resize(out.size());
        operation = std::make_unique<TileLink::Operation>(
            link.all_to_all(send, receive, {"operation", static_cast<int>(id)}));
    }
    /// Releases one more piece for some member; false: none is left.
    bool release_one(std::mt19937& random) {
        std::vector<int> members;
        for (size_t m = 0; m < out.size(); ++m) {
            if (released[m] < static_cast<int>(out_ends[m].size())) {
                members.push_back(static_cast<int>(m));
            }
        }
        if (members.empty()) return false;
        const int member = members[random() % members.size()];
        operation->release(member, ++released[static_cast<size_t>(member)]);
        return true;
    }
    void finish(int self) {
        operation->finish();
        for (size_t m = 0; m < in.size(); ++m) {
            for (size_t i = 0; i < in[m].size(); ++i) {
                ASSERT_EQ(in[m][i], content(static_cast<int>(m), self, id, i));
            }
        }
    }
};

/// All ranks start the same operations of two links in the same order. Each releases, tests and
/// delays as it likes, and finishes what it has released in an order of its own.
void run_program(Communicator& c, unsigned seed) {
    std::mt19937 common(seed);
    std::mt19937 random(seed * 977 + static_cast<unsigned>(c.rank()));
    std::vector<int> half;
    for (int r = c.rank() % 2; r < c.size(); r += 2) half.push_back(r);
    const auto all = open_tile_link(c, {.ranks = tile_link::all_ranks(c.size())});
    const auto team = open_tile_link(c, {.ranks = half});
    const auto reversed = [&] {
        std::vector<int> ranks = tile_link::all_ranks(c.size());
        std::reverse(ranks.begin(), ranks.end());
        return open_tile_link(c, {.ranks = ranks});
    }();
    std::vector<std::pair<TileLink*, Running>> running;
    const unsigned operations = 2 + common() % 4;
    const auto delay = [&] {
        if (random() % 6 != 0) return;
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    };
    for (unsigned id = 0; id < operations; ++id) {
        TileLink* const links[] = {all.get(), team.get(), reversed.get()};
        TileLink* const link = links[common() % 3];
        running.emplace_back(link, Running(*link, seed * 100 + id));
        for (auto steps = random() % 4; steps > 0; --steps) {
            delay();
            (void)running[random() % running.size()].second.release_one(random);
        }
    }
    for (auto& [link, one] : running) {
        while (one.release_one(random)) delay();
    }
    std::shuffle(running.begin(), running.end(), random);
    for (auto& [link, one] : running) one.finish(link->rank());
}

TEST_P(OpenTileLink, OperationsOfSeveralLinksAreUnderWayAtOnce) {
    const int programs = std::max(1, testing::number_of_cases(300) / 10);
    world().run([&](Communicator& c) {
        // Without a barrier between programs: the next one begins before all have ended this one.
        for (int seed = 0; seed < programs; ++seed) run_program(c, static_cast<unsigned>(seed));
        c.barrier();
    });
}

TEST_P(OpenTileLink, JoinsTheRanksOfAnAxis) {
    world().run([](Communicator& c) {
        const Mesh mesh{.pipeline = c.size() % 2 == 0 ? 2 : 1,
                        .data = c.size() % 2 == 0 ? c.size() / 2 : c.size()};
        const auto link = open_tile_link(c, mesh, Axis::pipeline);
        EXPECT_EQ(link->size(), mesh.pipeline);
        EXPECT_EQ(link->rank(), mesh.place(c.rank()).pipeline);
        EXPECT_THROW((void)open_tile_link(c, Mesh{.pipeline = c.size() + 1}, Axis::pipeline),
                     UsageError);
        EXPECT_THROW((void)open_tile_link(c, {.ranks = {c.rank(), c.rank()}}), UsageError);
        EXPECT_THROW((void)open_tile_link(c, {.ranks = {c.size()}}), UsageError);
        Running(*link, 3).operation.reset();  // broken: it has not finished
    });
}

#ifdef VOCABPIPE_TEST_MPI

INSTANTIATE_TEST_SUITE_P(Mpi, OpenTileLink, ::testing::Values(0));

#else

INSTANTIATE_TEST_SUITE_P(Threads, OpenTileLink, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

TEST(OpenTileLinkFaults, AMemberThatDoesNotReleaseIsNamed) {
    TestWorld world(2, {.timeout_seconds = 0.3});
    try {
        world.run([](Communicator& c) {
            const auto link = open_tile_link(c, {.ranks = {0, 1}});
            if (c.rank() == 1) return;
            const std::vector<int64_t> ends{10};
            Bytes in(10);
            const std::vector<TileLink::Outgoing> send(2);
            const std::vector<TileLink::Incoming> receive{{}, {in, ends}};
            TileLink::Operation op = link->all_to_all(send, receive, {"hop", 4});
            op.wait(1, 1);
        });
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0: hop, layer 4: waits for piece 0 of "
                                                  "member 1 (rank 1) for 0."),
                                        HasSubstr("no progress within")));
    }
}

TEST(OpenTileLinkFaults, APieceOfAnotherSizeIsNamed) {
    TestWorld world(2, {.timeout_seconds = 10});
    try {
        world.run([](Communicator& c) {
            const auto link = open_tile_link(c, {.ranks = {0, 1}});
            const std::vector<int64_t> ends{10 + c.rank()};
            Bytes in(10), out(11);
            std::vector<TileLink::Outgoing> send(2);
            std::vector<TileLink::Incoming> receive(2);
            if (c.rank() == 0) receive[1] = {in, ends};
            if (c.rank() == 1) send[0] = {out, ends};
            TileLink::Operation op = link->all_to_all(send, receive, {"hop"});
            if (c.rank() == 1) op.release(0, 1);
            op.finish();
        });
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), HasSubstr("expects piece 0 of member 1 (rank 1) of 10 bytes, "
                                            "but one of 11 bytes came"));
    }
}

#endif

}  // namespace
}  // namespace vocabpipe
