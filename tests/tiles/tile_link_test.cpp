// SPDX-License-Identifier: Apache-2.0
// What a tile link promises, against plain copies. One source, four programs: see test_world.hpp.
#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "src/runtime/transport/modelled_link.hpp"
#include "src/runtime/wait.hpp"
#include "tests/support/test_world.hpp"
#include "tests/tiles/faulty_transport.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tile_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace vocabpipe {
namespace {

using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

using testing::TestWorld;

constexpr auto kPoison = static_cast<std::byte>(0xdb);

/// The parameter is the number of ranks; under mpirun it is what mpirun started.
class TileLinkRanks : public ::testing::TestWithParam<int> {
protected:
    [[nodiscard]] static TestWorld world() { return TestWorld(GetParam()); }
};

std::unique_ptr<TileLink> link_of(Communicator& c, std::function<void()> poll = {}) {
    return make_host_tile_link(c.transport(), c.wait_options(),
                               {.ranks = tile_link::all_ranks(c.size()), .poll = std::move(poll)});
}

/// Byte `i` of what `from` sends `to` in operation `id`: a plain formula, known on all ranks.
std::byte content(int from, int to, int id, size_t i) {
    const auto mixed = (static_cast<uint32_t>(from) * 31u + static_cast<uint32_t>(to)) * 131u +
                       static_cast<uint32_t>(id) * 7919u + static_cast<uint32_t>(i);
    return static_cast<std::byte>((mixed * 2654435761u) >> 24);
}

/// An all-to-all with random pieces, the same on every rank: it depends on the seed only.
struct Exchange {
    int id = 0;
    std::vector<std::vector<std::vector<int64_t>>> ends;  ///< [from][to]

    Exchange(unsigned seed, int members) : id(static_cast<int>(seed)) {
        std::mt19937 random(seed);
        ends.resize(static_cast<size_t>(members));
        for (auto& row : ends) {
            row.resize(static_cast<size_t>(members));
            for (std::vector<int64_t>& part : row) {
                const int pieces = random() % 4 == 0 ? 0 : static_cast<int>(random() % 9);
                int64_t at = 0;
                for (int i = 0; i < pieces; ++i) {
                    const bool large = random() % 8 == 0;  // beyond MPI's eager messages
                    at += random() % 5 == 0
                              ? 0
                              : static_cast<int64_t>(random() % (large ? 90000 : 900));
                    part.push_back(at);
                }
            }
        }
    }
};

/// One rank's memory of an exchange.
struct Memory {
    std::vector<Bytes> out, in;
    std::vector<TileLink::Outgoing> send;
    std::vector<TileLink::Incoming> receive;

    Memory(const Exchange& x, int rank) {
        const auto self = static_cast<size_t>(rank);
        const auto size_of = [](const std::vector<int64_t>& ends) {
            return ends.empty() ? size_t{0} : static_cast<size_t>(ends.back());
        };
        for (size_t m = 0; m < x.ends.size(); ++m) {
            out.emplace_back(size_of(x.ends[self][m]), kPoison);  // filled by fill()
            in.emplace_back(size_of(x.ends[m][self]), kPoison);
        }
        for (size_t m = 0; m < x.ends.size(); ++m) {
            send.push_back({out[m], x.ends[self][m]});
            receive.push_back({in[m], x.ends[m][self]});
        }
    }
    /// Makes piece `piece` for `to`; only then may it be released.
    void fill(const Exchange& x, int rank, int to, int piece) {
        const std::vector<int64_t>& ends =
            x.ends[static_cast<size_t>(rank)][static_cast<size_t>(to)];
        const auto at = static_cast<size_t>(piece);
        for (int64_t i = piece == 0 ? 0 : ends[at - 1]; i < ends[at]; ++i) {
            const auto byte = static_cast<size_t>(i);
            out[static_cast<size_t>(to)][byte] = content(rank, to, x.id, byte);
        }
    }
    /// Bytes of the first `pieces` pieces from `from` that are not what was sent.
    [[nodiscard]] int wrong(const Exchange& x, int rank, int from, int pieces) const {
        if (pieces == 0) return 0;
        const auto& ends = x.ends[static_cast<size_t>(from)][static_cast<size_t>(rank)];
        int count = 0;
        for (size_t i = 0; i < static_cast<size_t>(ends[static_cast<size_t>(pieces) - 1]); ++i) {
            if (in[static_cast<size_t>(from)][i] != content(from, rank, x.id, i)) ++count;
        }
        return count;
    }
};

/// Runs one exchange with releases, tests and waits in a random order of this rank's own.
void run_randomly(TileLink& link, const Exchange& x, std::mt19937& random, bool delays) {
    const int rank = link.rank();
    Memory memory(x, rank);
    TileLink::Operation op = link.all_to_all(memory.send, memory.receive, {"exchange", x.id});
    std::vector<int> released(static_cast<size_t>(link.size()), 0);
    std::vector<std::pair<int, int>> releases;  // (member, pieces), ascending for each member
    for (int m = 0; m < link.size(); ++m) {
        for (size_t k = 0; k < memory.send[static_cast<size_t>(m)].ends.size(); ++k) {
            releases.emplace_back(m, 0);
        }
    }
    std::shuffle(releases.begin(), releases.end(), random);
    for (const auto& [m, unused] : releases) {
        if (delays && random() % 4 == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        }
        int& done = released[static_cast<size_t>(m)];
        memory.fill(x, rank, m, done);
        op.release(m, ++done);
        const int from = static_cast<int>(random() % static_cast<unsigned>(link.size()));
        const auto pieces =
            static_cast<unsigned>(memory.receive[static_cast<size_t>(from)].ends.size());
        const int some = static_cast<int>(random() % (pieces + 1));
        if (op.test(from, some)) {
            EXPECT_EQ(memory.wrong(x, rank, from, some), 0);
        }
    }
    for (int i = 0; i < link.size(); ++i) {
        const int from = link.from(i);
        const int pieces = static_cast<int>(memory.receive[static_cast<size_t>(from)].ends.size());
        for (int k = 1; k <= pieces; ++k) {
            op.wait(from, k);
            EXPECT_TRUE(op.test(from, k)) << "they are there";
            EXPECT_EQ(memory.wrong(x, rank, from, k), 0) << "piece " << k - 1 << " of " << from;
        }
    }
    op.finish();
    for (Bytes& bytes : memory.out) std::fill(bytes.begin(), bytes.end(), kPoison);
}

TEST(TileLinkChannels, AreThoseOfTheTeamAndOfMessagesThatItsMembersNeverSend) {
    struct Expected {
        Axis axis;
        Channel first, second;
    };
    for (const auto& [axis, first, second] :
         {Expected{Axis::tensor, Channel::tensor, Channel::forward},
          Expected{Axis::context, Channel::context, Channel::forward},
          Expected{Axis::expert, Channel::expert, Channel::backward}}) {
        EXPECT_EQ(tile_link::channel_of(axis), first) << to_string(axis);
        EXPECT_EQ(tile_link::channel_of(axis, 0), first) << to_string(axis);
        EXPECT_EQ(tile_link::channel_of(axis, 1), second) << to_string(axis);
    }
    for (const int lane : {0, 1}) {
        EXPECT_THAT([&] { (void)tile_link::channel_of(Axis::data, lane); },
                    ThrowsMessage<UsageError>(StrEq(
                        "tile link: axis data: devices link tensor, context and expert ranks; for "
                        "others call open_tile_link()")));
    }
}

TEST_P(TileLinkRanks, PiecesOfAnySizeArriveWholeInFiveOperationsInARow) {
    world().run([](Communicator& c) {
        const auto link = link_of(c);
        EXPECT_EQ(link->size(), c.size());
        EXPECT_EQ(link->rank(), c.rank());
        std::mt19937 random(static_cast<unsigned>(c.rank()) + 17);
        for (unsigned round = 0; round < 6; ++round) {
            for (unsigned seed = 5 * round; seed < 5 * round + 5; ++seed) {
                run_randomly(*link, Exchange(seed, c.size()), random, round % 2 == 1);
            }
        }
    });
}

TEST_P(TileLinkRanks, TeamsOfSomeRanksAndBothChannelsDoNotDisturbEachOther) {
    world().run([](Communicator& c) {
        // Even and odd ranks are teams, and all of them another one.
        std::vector<int> ranks;
        for (int r = c.rank() % 2; r < c.size(); r += 2) ranks.push_back(r);
        const auto team =
            make_host_tile_link(c.transport(), c.wait_options(), {.ranks = ranks}, Channel::expert);
        const auto all = link_of(c);
        std::mt19937 random(static_cast<unsigned>(c.rank()));
        for (unsigned seed = 100; seed < 105; ++seed) {
            const Exchange outer(seed, c.size());
            Memory memory(outer, c.rank());
            TileLink::Operation op = all->all_to_all(memory.send, memory.receive, {"outer"});
            run_randomly(*team, Exchange(seed + 50, team->size()), random, false);
            for (int m = 0; m < c.size(); ++m) {
                const int pieces =
                    static_cast<int>(memory.send[static_cast<size_t>(m)].ends.size());
                for (int k = 0; k < pieces; ++k) memory.fill(outer, c.rank(), m, k);
                op.release(m, pieces);
            }
            op.finish();
            for (int m = 0; m < c.size(); ++m) {
                const int pieces =
                    static_cast<int>(memory.receive[static_cast<size_t>(m)].ends.size());
                EXPECT_EQ(memory.wrong(outer, c.rank(), m, pieces), 0);
            }
        }
    });
}

TEST_P(TileLinkRanks, AllGatherInPlaceMovesRowsOfATileMap) {
    world().run([](Communicator& c) {
        const auto link = link_of(c);
        constexpr int64_t kRowBytes = 12;
        const TileMap map = TileMap::even(100 * c.size() + 7, c.size(), 3);
        const auto value = [](int64_t i) { return static_cast<std::byte>(i * 7 % 251); };
        Bytes all(static_cast<size_t>(map.rows() * kRowBytes), kPoison);
        std::vector<std::vector<int64_t>> ends;
        for (int m = 0; m < c.size(); ++m) ends.push_back(map.ends(m, kRowBytes));
        const auto part = [&](int m) {
            return std::span(all).subspan(static_cast<size_t>(map.rows(m).first * kRowBytes),
                                          static_cast<size_t>(map.rows(m).size() * kRowBytes));
        };
        std::vector<TileLink::Outgoing> send;
        std::vector<TileLink::Incoming> receive;
        for (int m = 0; m < c.size(); ++m) {
            send.push_back({part(c.rank()), ends[static_cast<size_t>(c.rank())]});
            receive.push_back({part(m), ends[static_cast<size_t>(m)]});
        }
        const RowRange own = map.rows(c.rank());
        for (int64_t i = own.first * kRowBytes; i < own.end * kRowBytes; ++i) {
            all[static_cast<size_t>(i)] = value(i);
        }
        TileLink::Operation op = link->all_to_all(send, receive, {"all-gather", 3});
        for (int i = 0; i < c.size(); ++i) op.release(link->to(i), map.pieces(c.rank()));
        for (int64_t first = 0; first < map.rows(); first += 50) {  // tiles that straddle members
            const RowRange tile{first, std::min(first + 50, map.rows())};
            for (int m = 0; m < c.size(); ++m) op.wait(m, map.needed(m, tile));
            for (int64_t i = tile.first * kRowBytes; i < tile.end * kRowBytes; ++i) {
                ASSERT_EQ(all[static_cast<size_t>(i)], value(i));
            }
        }
        op.finish();
    });
}

/// Pieces of two operations' worth, in the reverse order and with gaps, and the second of them made
/// from the first ones of all members.
TEST_P(TileLinkRanks, PiecesMayLieAnywhereAndFollowFromPiecesThatHaveArrived) {
    world().run([](Communicator& c) {
        const auto link = link_of(c);
        const auto members = static_cast<size_t>(c.size());
        Bytes memory(members * 64, kPoison);
        const std::vector<int64_t> out_begins{32, 3}, out_ends{40, 3 + 5};
        std::vector<std::vector<int64_t>> in_begins, in_ends;
        std::vector<TileLink::Outgoing> send(members);
        std::vector<TileLink::Incoming> receive(members);
        Bytes own(64, kPoison);
        for (size_t m = 0; m < members; ++m) {
            const auto at = static_cast<int64_t>(64 * m);
            in_begins.push_back({at + 50, at + 10});
            in_ends.push_back({at + 58, at + 15});
        }
        for (size_t m = 0; m < members; ++m) {
            send[m] = {own, out_ends, out_begins};
            receive[m] = {memory, in_ends[m], in_begins[m]};
        }
        TileLink::Operation op =
            link->all_to_all(send, receive, {"scattered"}, TileLink::Order::by_piece);
        for (int64_t i = 32; i < 40; ++i) {
            own[static_cast<size_t>(i)] = content(c.rank(), 0, 5, static_cast<size_t>(i));
        }
        for (int i = 0; i < c.size(); ++i) op.release(link->to(i), 1);
        std::byte sum{};
        for (int i = 0; i < c.size(); ++i) {
            const int from = link->from(i);
            op.wait(from, 1);
            for (size_t n = 0; n < 8; ++n) {
                const std::byte got = memory[static_cast<size_t>(from) * 64 + 50 + n];
                EXPECT_EQ(got, content(from, 0, 5, 32 + n));
                sum ^= got;
            }
        }
        for (size_t n = 3; n < 8; ++n) own[n] = sum;
        for (int i = 0; i < c.size(); ++i) op.release(link->to(i), 2);
        op.finish();
        for (size_t m = 0; m < members; ++m) {
            for (size_t n = 0; n < 64; ++n) {
                const std::byte got = memory[64 * m + n];
                if (n >= 10 && n < 15) {
                    EXPECT_EQ(got, sum);
                } else if (n < 50 || n >= 58) {
                    EXPECT_EQ(got, kPoison);
                }
            }
        }
    });
}

TEST_P(TileLinkRanks, AWaitSaysHowManyPiecesAreThere) {
    world().run([](Communicator& c) {
        const auto link = link_of(c);
        const std::vector<int64_t> ends{40, 80, 120};
        const Bytes out(120, kPoison);
        std::vector<Bytes> in(static_cast<size_t>(c.size()), Bytes(120));
        std::vector<TileLink::Outgoing> send(in.size(), {out, ends});
        std::vector<TileLink::Incoming> receive;
        for (Bytes& bytes : in) receive.push_back({bytes, ends});
        TileLink::Operation op = link->all_to_all(send, receive, {"x"});
        op.release(c.rank(), 2);
        EXPECT_EQ(op.wait(c.rank(), 1), 2);
        for (int i = 1; i < c.size(); ++i) op.release(link->to(i), 3);
        op.release(c.rank(), 3);
        for (int i = 1; i < c.size(); ++i) {
            const int from = link->from(i);
            const auto all = [&] {
                const int there = op.wait(from, 1);
                for (int k = 0; k < 40 * there; ++k) {
                    EXPECT_EQ(in[static_cast<size_t>(from)][static_cast<size_t>(k)], kPoison);
                }
                return there == 3;
            };
            EXPECT_EQ(poll_until(c.wait_options(), all), IdleWait::Verdict::go_on);
        }
        op.finish();
    });
}

TEST_P(TileLinkRanks, WaitsPollSoThatOtherTransfersGoOn) {
    world().run([](Communicator& c) {
        if (c.size() < 2 || c.rank() > 1) return;
        // Rank 0 releases only once it has a message that rank 1 starts when its wait polls.
        const std::vector<int> pair{1, 0};
        std::byte token{};
        std::vector<Ticket> started;
        const auto poll = [&] {
            if (c.rank() == 0 || !started.empty()) return;
            started.push_back(c.transport().start({.what = Do::send,
                                                   .channel = Channel::forward,
                                                   .ranks = pair,
                                                   .send = std::span(&token, 1)}));
        };
        const auto link =
            make_host_tile_link(c.transport(), c.wait_options(), {.ranks = {0, 1}, .poll = poll});
        if (c.rank() == 0) {
            started.push_back(c.transport().start({.what = Do::receive,
                                                   .channel = Channel::forward,
                                                   .ranks = pair,
                                                   .receive = std::span(&token, 1)}));
        }
        const auto over = [&] { return c.transport().test(started.at(0)); };
        if (c.rank() == 0) {
            EXPECT_EQ(poll_until(c.wait_options(), over), IdleWait::Verdict::go_on);
        }
        const std::vector<int64_t> ends{10};
        Bytes in(10), out(10, kPoison);
        const TileLink::Outgoing mine{out, ends};
        const TileLink::Incoming theirs{in, ends};
        const std::vector<TileLink::Outgoing> send = c.rank() == 0
                                                         ? std::vector<TileLink::Outgoing>{{}, mine}
                                                         : std::vector<TileLink::Outgoing>(2);
        const std::vector<TileLink::Incoming> receive =
            c.rank() == 1 ? std::vector<TileLink::Incoming>{theirs, {}}
                          : std::vector<TileLink::Incoming>(2);
        TileLink::Operation op = link->all_to_all(send, receive, {"hop"});
        if (c.rank() == 0) op.release(1, 1);
        if (c.rank() == 1) op.wait(0, 1);
        op.finish();
        if (c.rank() == 1) {
            EXPECT_EQ(in, out);
            EXPECT_EQ(poll_until(c.wait_options(), over), IdleWait::Verdict::go_on);
        }
    });
}

TEST_P(TileLinkRanks, RefusesWhatDoesNotFit) {
    world().run([](Communicator& c) {
        const auto link = link_of(c);
        const Exchange x(0, c.size());
        Memory memory(x, c.rank());
        const auto start = [&](auto send, auto receive) {
            return link->all_to_all(send, receive, {"x"});
        };
        auto fewer = memory.send;
        fewer.pop_back();
        EXPECT_THROW((void)start(fewer, memory.receive), UsageError);
        const std::vector<int64_t> descending{3, 2};
        auto bad = memory.send;
        bad[0].ends = descending;
        EXPECT_THROW((void)start(bad, memory.receive), UsageError);
        const std::vector<int64_t> beyond{1'000'000'000};
        bad[0].ends = beyond;
        EXPECT_THROW((void)start(bad, memory.receive), UsageError);
        const auto team = [&](std::vector<int> ranks) {
            return make_host_tile_link(c.transport(), c.wait_options(),
                                       {.ranks = std::move(ranks)});
        };
        EXPECT_THROW((void)team({}), UsageError);
        EXPECT_THROW((void)team({c.rank(), c.rank()}), UsageError);
        EXPECT_THROW((void)team({c.rank(), c.size()}), UsageError);

        TileLink::Operation op = start(memory.send, memory.receive);
        EXPECT_THROW((void)start(memory.send, memory.receive), UsageError);  // one at a time
        const auto pieces = [&](int m) {
            return static_cast<int>(memory.send[static_cast<size_t>(m)].ends.size());
        };
        EXPECT_THROW(op.release(0, pieces(0) + 1), UsageError);
        EXPECT_THROW(op.wait(0, static_cast<int>(memory.receive[0].ends.size()) + 1), UsageError);
        int most = 0;
        for (int m = 0; m < c.size(); ++m) most = std::max(most, pieces(m));
        if (most > 0) {
            EXPECT_THROW(op.finish(), UsageError);  // not everything is released
        }
        for (int m = 0; m < c.size(); ++m) op.release(m, pieces(m));
        op.finish();
    });
}

// --- the modelled link ---------------------------------------------------------------------------

TEST_P(TileLinkRanks, ModelledLinkMovesTheSameBytesNoEarlierThanItsRateAllows) {
    world().run([](Communicator& c) {
        constexpr int64_t kBytes = 40'000;
        constexpr double kRate = 0.01;  // bytes per ns: 4 ms for each part
        const auto modelled = make_modelled_link(
            c.transport(), {.bytes_per_ns = kRate, .latency_ns = 1'000'000, .piece_ns = 1000});
        const auto link = make_host_tile_link(*modelled, c.wait_options(),
                                              {.ranks = tile_link::all_ranks(c.size())});
        const std::vector<int64_t> ends{kBytes / 4, kBytes / 2, kBytes};
        std::vector<Bytes> in(static_cast<size_t>(c.size()), Bytes(kBytes, kPoison));
        Bytes out(kBytes, static_cast<std::byte>(c.rank() + 1));
        std::vector<TileLink::Outgoing> send;
        std::vector<TileLink::Incoming> receive;
        for (int m = 0; m < c.size(); ++m) {
            send.push_back({out, ends});
            receive.push_back({in[static_cast<size_t>(m)], ends});
        }
        // Others release behind the barrier, which they may leave long before this rank.
        const int64_t begin = now_ns();
        c.barrier();
        TileLink::Operation op = link->all_to_all(send, receive, {"all-gather"});
        for (int i = 0; i < c.size(); ++i) op.release(link->to(i), 3);
        op.finish();
        const int64_t least = c.size() < 2 ? 0 : static_cast<int64_t>(kBytes / kRate);
        EXPECT_GE(now_ns() - begin, least);
        for (int m = 0; m < c.size(); ++m) {
            EXPECT_EQ(in[static_cast<size_t>(m)], Bytes(kBytes, static_cast<std::byte>(m + 1)));
        }
        const std::vector<int> ranks =
            tile_link::all_ranks(c.size());  // other transfers pass through
        Bytes all(static_cast<size_t>(c.size()));
        const Bytes mine(1, static_cast<std::byte>(c.rank()));
        const Ticket ticket = modelled->start({.what = Do::all_gather,
                                               .channel = Channel::collective,
                                               .ranks = ranks,
                                               .send = mine,
                                               .receive = all});
        (void)poll_until(c.wait_options(), [&] { return modelled->test(ticket); });
        for (int m = 0; m < c.size(); ++m) {
            EXPECT_EQ(all[static_cast<size_t>(m)], static_cast<std::byte>(m));
        }
    });
}

#ifdef VOCABPIPE_TEST_MPI

INSTANTIATE_TEST_SUITE_P(Mpi, TileLinkRanks, ::testing::Values(0));

#else

INSTANTIATE_TEST_SUITE_P(Threads, TileLinkRanks, ::testing::Values(1, 2, 4),
                         ::testing::PrintToStringParamName());

// --- faults --------------------------------------------------------------------------------------

/// What the world of a broken exchange ends with. Every piece has `bytes` bytes; rank 1's transport
/// does `fault` to its message `message` to others, counted from 0: label 0, piece 0, label 1, ...
std::string error_of(int ranks, testing::Fault fault, int message, int operations = 2) {
    TestWorld world(ranks, {.timeout_seconds = 0.3});
    try {
        world.run([&](Communicator& c) {
            testing::FaultyTransport faulty(c.transport());
            if (c.rank() == 1) faulty.set(fault, message);
            const auto link = make_host_tile_link(faulty, c.wait_options(),
                                                  {.ranks = tile_link::all_ranks(c.size())});
            const std::vector<int64_t> ends{50, 100, 150};
            std::vector<Bytes> in(static_cast<size_t>(ranks), Bytes(150));
            const Bytes out(150, static_cast<std::byte>(c.rank()));
            const std::vector<TileLink::Outgoing> send(static_cast<size_t>(ranks), {out, ends});
            std::vector<TileLink::Incoming> receive;
            for (Bytes& part : in) receive.push_back({part, ends});
            for (int i = 0; i < operations; ++i) {
                TileLink::Operation op = link->all_to_all(send, receive, {"all-gather of x", 7});
                for (int m = 0; m < ranks; ++m) op.release(m, 3);
                op.finish();
            }
        });
    } catch (const CommunicationError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::communication);
        return error.what();
    }
    return "no error";
}

TEST(TileLinkFaults, APieceThatIsLostIsNamed) {
    // Rank 1 of two: messages 2 and 3 are the label and the bytes of piece 1 for rank 0.
    EXPECT_THAT(error_of(2, testing::Fault::drop_two, 2),
                AllOf(HasSubstr("rank 0: all-gather of x, layer 7: "),
                      HasSubstr("expects piece 1 of member 1 (rank 1), but piece 2 came: this one "
                                "was lost")));
    // The last one: seen in the next operation, or by the deadline if there is none.
    EXPECT_THAT(error_of(2, testing::Fault::drop_two, 4),
                HasSubstr("expects piece 2 of member 1 (rank 1), but piece 0 of a later operation "
                          "came"));
    EXPECT_THAT(error_of(2, testing::Fault::drop_two, 4, 1),
                AllOf(HasSubstr("rank 0: all-gather of x, layer 7: waits for piece 2 of member 1 "
                                "(rank 1) for 0."),
                      HasSubstr("no progress within --distributed-timeout-seconds")));
}

TEST(TileLinkFaults, HalfAMessageIsNamed) {
    // The label alone, or the bytes alone: sizes do not fit.
    for (const int message : {2, 3}) {
        EXPECT_THAT(error_of(2, testing::Fault::drop_one, message),
                    AllOf(HasSubstr("all-gather of x, layer 7: "), HasSubstr(" piece "),
                          HasSubstr("received a message of ")));
    }
}

TEST(TileLinkFaults, APieceThatComesTwiceIsNamed) {
    EXPECT_THAT(error_of(2, testing::Fault::double_two, 0),
                HasSubstr("expects piece 1 of member 1 (rank 1), but piece 0 came a second time"));
    EXPECT_THAT(error_of(2, testing::Fault::double_two, 4),
                HasSubstr("expects piece 0 of member 1 (rank 1), but piece 2 of an earlier "
                          "operation came, a second time"));
}

TEST(TileLinkFaults, AMemberThatDoesNotComeEndsTheOthersInTime) {
    const auto begin = std::chrono::steady_clock::now();
    TestWorld world(3, {.timeout_seconds = 0.3});
    try {
        world.run([](Communicator& c) {
            if (c.rank() == 2) return;
            const auto link = link_of(c);
            const Exchange x(1, 3);
            Memory memory(x, c.rank());
            const std::vector<int64_t> ends{10};
            Bytes in(10);
            const Bytes out(10);
            const std::vector<TileLink::Outgoing> send(3, {out, ends});
            std::vector<Bytes> parts(3, Bytes(10));
            std::vector<TileLink::Incoming> receive;
            for (Bytes& part : parts) receive.push_back({part, ends});
            TileLink::Operation op = link->all_to_all(send, receive, {"reduce-scatter of y", 0});
            for (int m = 0; m < 3; ++m) op.release(m, 1);
            op.wait(2, 1);
        });
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(
            error.what(),
            HasSubstr("reduce-scatter of y, layer 0: waits for piece 0 of member 2 (rank 2)"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(TileLinkFaults, AMemberThatFailsEndsTheOthersWithItsReason) {
    TestWorld world(2, {.timeout_seconds = 60});
    std::string other;
    try {
        world.run([&](Communicator& c) {
            if (c.rank() == 1) throw UsageError("rank 1 is out of rows");
            const auto link = link_of(c);
            const std::vector<int64_t> ends{10};
            Bytes in(10);
            const std::vector<TileLink::Outgoing> send(2);
            const std::vector<TileLink::Incoming> receive{{}, {in, ends}};
            TileLink::Operation op = link->all_to_all(send, receive, {"hop"});
            try {
                op.wait(1, 1);
            } catch (const CommunicationError& error) {
                other = error.what();
                throw;
            }
        });
        FAIL() << "no exception";
    } catch (const UsageError&) {
    }
    EXPECT_THAT(other, AllOf(HasSubstr("rank 0: hop: expects piece 0 of member 1 (rank 1); "),
                             HasSubstr("rank 1 failed: rank 1 is out of rows")));
}

TEST(TileLinkFaults, InterruptionEndsAWait) {
    TestWorld world(2, {.timeout_seconds = 60, .interrupted = [] { return true; }});
    try {
        world.run([](Communicator& c) {
            if (c.rank() == 1) return;
            const auto link = link_of(c);
            const std::vector<int64_t> ends{10};
            Bytes in(10);
            const std::vector<TileLink::Outgoing> send(2);
            const std::vector<TileLink::Incoming> receive{{}, {in, ends}};
            TileLink::Operation op = link->all_to_all(send, receive, {"hop"});
            op.wait(1, 1);
        });
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("rank 0: hop: waits for piece 0"), HasSubstr("told to end")));
    }
}

TEST(TileLinkFaults, LateSenderDoesNotWriteIntoMemoryOfAnOperationThatIsGone) {
    for (int round = 0; round < 5; ++round) {
        std::atomic<bool> gone{false};
        TestWorld world(2, {.timeout_seconds = 30});
        EXPECT_THROW(world.run([&](Communicator& c) {
            const auto link = link_of(c);
            const std::vector<int64_t> ends{60'000, 120'000};
            const Bytes out(120'000, kPoison);
            if (c.rank() == 0) {
                std::vector<TileLink::Outgoing> send(2);
                {
                    auto in = std::make_unique<Bytes>(120'000);
                    const std::vector<TileLink::Incoming> receive{{}, {*in, ends}};
                    TileLink::Operation op = link->all_to_all(send, receive, {"hop"});
                }  // as on the way out with an error
                gone = true;
                std::this_thread::sleep_for(milliseconds(20));
                std::vector<TileLink::Incoming> none(2);
                (void)link->all_to_all(send, none, {"next"});  // the link is of no use
            }
            while (!gone) std::this_thread::yield();
            const std::vector<TileLink::Outgoing> send{{out, ends}, {}};
            const std::vector<TileLink::Incoming> receive(2);
            TileLink::Operation op = link->all_to_all(send, receive, {"hop"});
            op.release(0, 2);
            op.finish();
        }),
                     CommunicationError);
    }
}

#endif

}  // namespace
}  // namespace vocabpipe
