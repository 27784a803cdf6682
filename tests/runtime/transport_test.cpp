// SPDX-License-Identifier: Apache-2.0
// What transports, communicators and worlds promise, checked against brute force. One source, four
// programs: see test_world.hpp.
#include "src/runtime/transport/transport.hpp"
#include "tests/support/test_world.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace vocabpipe {
namespace {

using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

using testing::kSharedMemory;
using testing::kThreads;
using testing::TestWorld;

/// The parameter is the number of ranks; under mpirun it is what mpirun started.
class Ranks : public ::testing::TestWithParam<int> {
protected:
    [[nodiscard]] TestWorld world() const { return TestWorld(GetParam()); }
};

std::vector<int> all_of(int size) {
    std::vector<int> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
}

/// Bytes that only rank `rank` sends as message `id`.
Bytes content(int rank, int id, size_t size) {
    std::minstd_rand random(static_cast<unsigned>(rank * 7919 + id + 1));
    std::vector<uint64_t> words((size + 7) / 8);
    for (uint64_t& word : words) word = random() * 0x9e3779b97f4a7c15u;
    Bytes bytes(size);
    if (size > 0) std::memcpy(bytes.data(), words.data(), size);
    return bytes;
}

/// Polls until all tickets are done; a hang is an error.
void finish(Transport& transport, std::vector<Ticket> tickets) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!tickets.empty()) {
        std::erase_if(tickets, [&](Ticket ticket) { return transport.test(ticket); });
        if (std::chrono::steady_clock::now() > deadline) {
            transport.cancel();
            throw std::runtime_error("transfers did not end");
        }
        std::this_thread::yield();
    }
}

void run(Transport& transport, const Transfer& transfer) {
    finish(transport, {transport.start(transfer)});
}

void send(Transport& t, int to, const Bytes& bytes, Channel channel = Channel::forward) {
    const std::vector<int> pair{t.rank(), to};
    run(t, {.what = Do::send, .channel = channel, .ranks = pair, .send = bytes});
}

Bytes receive(Transport& t, int from, size_t size, Channel channel = Channel::forward) {
    const std::vector<int> pair{from, t.rank()};
    Bytes bytes(size);
    run(t, {.what = Do::receive, .channel = channel, .ranks = pair, .receive = bytes});
    return bytes;
}

// --- contents
// ---------------------------------------------------------------------------------------

TEST_P(Ranks, MessagesOfAnySizeArriveWholeBetweenEveryPair) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        for (const size_t size :
             {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{3'000'001}}) {
            for (int from = 0; from < t.size(); ++from) {
                for (int to = 0; to < t.size(); ++to) {
                    if (from == to) continue;
                    if (t.rank() == from) send(t, to, content(from, to, size));
                    if (t.rank() == to) {
                        EXPECT_EQ(receive(t, from, size), content(from, to, size)) << size;
                    }
                }
            }
        }
    });
}

TEST_P(Ranks, MessagesOfOneChannelKeepTheirOrderAndChannelsAreIndependent) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        if (t.size() < 2 || t.rank() > 1) return;
        constexpr int kMessages = 200;
        const int peer = 1 - t.rank();
        const std::vector<int> out{t.rank(), peer};
        const std::vector<int> in{peer, t.rank()};
        // Each side sends on both channels in one order and receives them in the opposite one.
        std::deque<Bytes> sent, received;
        std::vector<Ticket> tickets;
        const auto channel = [](int i) { return i == 0 ? Channel::forward : Channel::backward; };
        for (int message = 0; message < kMessages; ++message) {
            for (const int which : {0, 1}) {
                sent.push_back(content(t.rank(), 1000 * which + message, 100));
                tickets.push_back(t.start({.what = Do::send,
                                           .channel = channel(which),
                                           .ranks = out,
                                           .send = sent.back()}));
            }
        }
        for (const int which : {1, 0}) {
            for (int message = 0; message < kMessages; ++message) {
                received.emplace_back(100);
                tickets.push_back(t.start({.what = Do::receive,
                                           .channel = channel(which),
                                           .ranks = in,
                                           .receive = received.back()}));
            }
        }
        finish(t, tickets);
        size_t at = 0;
        for (const int which : {1, 0}) {
            for (int message = 0; message < kMessages; ++message) {
                ASSERT_EQ(received[at++], content(peer, 1000 * which + message, 100))
                    << "channel " << which << " message " << message;
            }
        }
    });
}

TEST_P(Ranks, BroadcastGivesEveryMemberTheBytesOfTheRoot) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        const std::vector<int> everyone = all_of(t.size());
        for (const size_t size : {size_t{0}, size_t{5}, size_t{2'000'000}}) {
            for (int root = 0; root < t.size(); ++root) {
                Bytes bytes = t.rank() == root ? content(root, 3, size) : Bytes(size);
                run(t, {.what = Do::broadcast,
                        .ranks = everyone,
                        .root = root,
                        .send = bytes,
                        .receive = bytes});
                EXPECT_EQ(bytes, content(root, 3, size));
            }
        }
    });
}

TEST_P(Ranks, AllGatherLaysThePartsOutInGroupOrder) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        const std::vector<int> everyone = all_of(t.size());
        for (const size_t size : {size_t{0}, size_t{3}, size_t{500'000}}) {
            const Bytes mine = content(t.rank(), 4, size);
            Bytes all(size * everyone.size()), expected;
            run(t, {.what = Do::all_gather, .ranks = everyone, .send = mine, .receive = all});
            for (const int rank : everyone) {
                const Bytes part = content(rank, 4, size);
                expected.insert(expected.end(), part.begin(), part.end());
            }
            EXPECT_EQ(all, expected);
        }
    });
}

// --- a random program, every rank a part of it --------------------------------------------------

struct RandomTransfer {
    Do what;
    Channel channel;
    std::vector<int> ranks;
    int root;
    std::vector<int64_t> begin;  ///< block offsets; blocks may be empty, also the root's
    int64_t bytes;
};

/// The same on every rank: it depends on the seed only.
std::vector<RandomTransfer> random_program(unsigned seed, int size, int count) {
    std::mt19937 random(seed);
    const auto below = [&](int limit) {
        return static_cast<int>(random() % static_cast<unsigned>(limit));
    };
    std::vector<RandomTransfer> program;
    for (int i = 0; i < count; ++i) {
        RandomTransfer t{};
        constexpr std::array kinds{Do::send,       Do::broadcast, Do::all_gather,
                                   Do::all_to_all, Do::gather,    Do::all_gather_v};
        t.what = kinds[static_cast<size_t>(below(kinds.size()))];
        t.channel = static_cast<Channel>(1 + below(3));
        std::vector<int> ranks = all_of(size);
        std::shuffle(ranks.begin(), ranks.end(), random);
        const int members = size == 1 ? 1 : t.what == Do::send ? 2 : 1 + below(size);
        if (t.what == Do::send && members == 1) continue;
        ranks.resize(static_cast<size_t>(members));
        if (t.what != Do::send) std::sort(ranks.begin(), ranks.end());
        t.ranks = ranks;
        t.root = ranks[static_cast<size_t>(below(members))];
        t.bytes = below(8) == 0 ? 200'000 : below(300);
        t.begin.push_back(0);
        for (int m = 0; m < members; ++m) {
            t.begin.push_back(t.begin.back() + (below(3) == 0 ? 0 : below(2000)));
        }
        program.push_back(t);
    }
    return program;
}

/// One rank's memory of one transfer, and what has to be in it afterwards.
struct Part {
    Bytes send, receive, expected;
};

Part part_of(const RandomTransfer& t, int id, int rank) {
    Part part;
    const auto bytes = static_cast<size_t>(t.bytes);
    const auto member =
        static_cast<size_t>(std::find(t.ranks.begin(), t.ranks.end(), rank) - t.ranks.begin());
    const auto block = [&](const Bytes& all, size_t i) {
        return Bytes(all.begin() + t.begin[i], all.begin() + t.begin[i + 1]);
    };
    const auto append = [](Bytes& to, const Bytes& from) {
        to.insert(to.end(), from.begin(), from.end());
    };
    const auto whole = static_cast<size_t>(t.begin.back());
    switch (t.what) {
        case Do::send:
            if (rank == t.ranks[0]) part.send = content(rank, id, bytes);
            if (rank == t.ranks[1]) part.expected = content(t.ranks[0], id, bytes);
            break;
        case Do::broadcast:
            part.expected = content(t.root, id, bytes);
            if (rank == t.root) part.receive = part.expected;
            break;
        case Do::all_gather:
            part.send = content(rank, id, bytes);
            for (const int r : t.ranks) append(part.expected, content(r, id, bytes));
            break;
        case Do::all_to_all:
            part.send = content(rank, id, whole);
            for (const int r : t.ranks) append(part.expected, block(content(r, id, whole), member));
            break;
        default:  // gather, all_gather_v
            part.send = block(content(rank, id, whole), member);
            if (t.what == Do::gather && rank != t.root) break;
            for (size_t i = 0; i < t.ranks.size(); ++i) {
                append(part.expected, block(content(t.ranks[i], id, whole), i));
            }
    }
    part.receive.resize(part.expected.size());
    return part;
}

TEST_P(Ranks, AnOwnBlockThatStaysIsNotCopied) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        const std::vector<int> ranks = all_of(t.size());
        constexpr size_t kBlock = 1000;
        std::vector<int64_t> begin;
        for (size_t i = 0; i <= ranks.size(); ++i) {
            begin.push_back(static_cast<int64_t>(i * kBlock));
        }
        const auto block_of = [&](const Bytes& all, int rank) {
            const auto first = all.begin() + begin[static_cast<size_t>(rank)];
            return Bytes(first, first + kBlock);
        };
        const size_t whole = ranks.size() * kBlock;
        const Bytes mine = content(t.rank(), 1, whole);
        Bytes received(whole, std::byte{7});
        run(t, {.what = Do::all_to_all,
                .ranks = ranks,
                .send = mine,
                .receive = received,
                .block_begin = begin,
                .own_stays = true});
        for (const int from : ranks) {
            const Bytes expected = from == t.rank() ? Bytes(kBlock, std::byte{7})
                                                    : block_of(content(from, 1, whole), t.rank());
            EXPECT_EQ(block_of(received, from), expected) << from;
        }
    });
}

TEST_P(Ranks, RandomProgramsMoveTheRightBytesWithEmptyBlocksAndSubgroups) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        for (unsigned seed = 1; seed <= 5; ++seed) {
            const auto program = random_program(seed, t.size(), 150);
            std::deque<Part> parts;
            std::vector<Ticket> open;
            std::mt19937 random(seed * 31 + static_cast<unsigned>(t.rank()));
            for (size_t i = 0; i < program.size(); ++i) {
                const RandomTransfer& one = program[i];
                parts.emplace_back();
                if (std::find(one.ranks.begin(), one.ranks.end(), t.rank()) == one.ranks.end()) {
                    continue;
                }
                Part& part = parts.back() = part_of(one, static_cast<int>(i), t.rank());
                Transfer transfer{.what = one.what,
                                  .channel = one.channel,
                                  .ranks = one.ranks,
                                  .root = one.root,
                                  .send = part.send,
                                  .receive = part.receive,
                                  .block_begin = one.begin};
                if (one.what == Do::send && t.rank() == one.ranks[1]) transfer.what = Do::receive;
                if (one.what == Do::broadcast) transfer.send = part.receive;
                open.push_back(t.start(transfer));
                // Many in flight, and every rank looks at them at its own times.
                if (random() % 4 == 0) {
                    std::erase_if(open, [&](Ticket ticket) { return t.test(ticket); });
                }
            }
            finish(t, open);
            for (size_t i = 0; i < parts.size(); ++i) {
                ASSERT_EQ(parts[i].receive, parts[i].expected)
                    << "rank " << t.rank() << " seed " << seed << " transfer " << i << " ("
                    << to_string(program[i].what) << ")";
            }
        }
    });
}

TEST_P(Ranks, GatherOfAGroupWhoseRootHasNoBlockTakesTheBlocksOfTheOthers) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        const std::vector<int> everyone = all_of(t.size());
        for (int root = 0; root < t.size(); ++root) {
            std::vector<int64_t> begin{0};
            for (const int rank : everyone) begin.push_back(begin.back() + (rank == root ? 0 : 11));
            const Bytes mine = t.rank() == root ? Bytes{} : content(t.rank(), 5, 11);
            Bytes whole(t.rank() == root ? static_cast<size_t>(begin.back()) : 0), expected;
            run(t, {.what = Do::gather,
                    .ranks = everyone,
                    .root = root,
                    .send = mine,
                    .receive = whole,
                    .block_begin = begin});
            if (t.rank() != root) continue;
            for (const int rank : everyone) {
                if (rank == root) continue;
                const Bytes part = content(rank, 5, 11);
                expected.insert(expected.end(), part.begin(), part.end());
            }
            EXPECT_EQ(whole, expected);
        }
    });
}

TEST_P(Ranks, ReduceGivesTheRootTheSumOfAllPartials) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        const std::vector<int> everyone = all_of(t.size());
        for (int root = 0; root < t.size(); ++root) {
            std::vector<float> mine(1000), sum(t.rank() == root ? 1000 : 0);
            for (size_t i = 0; i < mine.size(); ++i) {
                mine[i] = static_cast<float>(static_cast<int>(i % 100) * (t.rank() + 1));
            }
            run(t, {.what = Do::reduce,
                    .ranks = everyone,
                    .root = root,
                    .type = DType::fp32,
                    .send = std::as_bytes(std::span(mine)),
                    .receive = std::as_writable_bytes(std::span(sum))});
            const int factor = t.size() * (t.size() + 1) / 2;
            for (size_t i = 0; i < sum.size(); ++i) {
                ASSERT_EQ(sum[i], static_cast<float>(static_cast<int>(i % 100) * factor));
            }
        }
    });
}

// 256 + 0.6015625 (n - 1) to the nearest multiple of 2: every addend alone would be rounded away.
// And 1 + ... + n.
TEST_P(Ranks, ReduceOfBf16RoundsTheSumOnce) {
    world().run([](Communicator& c) {
        Transport& t = c.transport();
        const std::vector<int> everyone = all_of(t.size());
        const std::array<uint16_t, 5> numbers{0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0};  // 1 to 5
        const std::array<uint16_t, 5> sums_of_numbers{0x3f80, 0x4040, 0x40c0, 0x4120, 0x4170};
        const auto members = static_cast<size_t>(t.size());
        ASSERT_LE(members, numbers.size());
        const uint16_t large = 0x4380;  // 256; the next one is 258
        const uint16_t small = 0x3f1a;  // 0.6015625
        for (int root = 0; root < t.size(); ++root) {
            const std::array<uint16_t, 2> mine{t.rank() == 0 ? large : small,
                                               numbers[static_cast<size_t>(t.rank())]};
            std::vector<uint16_t> sum(t.rank() == root ? mine.size() : 0);
            run(t, {.what = Do::reduce,
                    .ranks = everyone,
                    .root = root,
                    .type = DType::bf16,
                    .send = std::as_bytes(std::span(mine)),
                    .receive = std::as_writable_bytes(std::span(sum))});
            if (t.rank() != root) continue;
            EXPECT_EQ(sum[0], members < 3 ? large : large + 1);
            EXPECT_EQ(sum[1], sums_of_numbers[members - 1]);
        }
    });
}

// --- communicators ------------------------------------------------------------------------------

TEST_P(Ranks, CommunicatorGathersPartsOfDifferentLength) {
    world().run([](Communicator& c) {
        for (int round = 0; round < 20; ++round) {
            const auto length = [&](int rank) {
                return static_cast<size_t>(rank * 13 + round) % 40;
            };
            const auto all = c.all_gather(content(c.rank(), round, length(c.rank())));
            ASSERT_EQ(all.size(), static_cast<size_t>(c.size()));
            for (int rank = 0; rank < c.size(); ++rank) {
                EXPECT_EQ(all[static_cast<size_t>(rank)], content(rank, round, length(rank)));
            }
        }
    });
}

TEST_P(Ranks, CommunicatorBringsEveryRankWhatEachHasForItAndPartsMayBeEmpty) {
    TestWorld w = world();
    w.run([](Communicator& c) {
        // Part of rank `from` for rank `to` in round `id`; a third of all parts is empty.
        const auto part = [](int from, int to, int id) {
            const int kind = (from * 31 + to * 17 + id) % 3;
            return content(from * 100 + to, id, kind == 0 ? 0 : static_cast<size_t>(kind * 50'001));
        };
        for (int id = 0; id < 5; ++id) {
            std::vector<Bytes> to_each;
            for (int to = 0; to < c.size(); ++to) to_each.push_back(part(c.rank(), to, id));
            const std::vector<Bytes> from_each = c.all_to_all(to_each);
            ASSERT_EQ(std::ssize(from_each), c.size());
            for (int from = 0; from < c.size(); ++from) {
                EXPECT_EQ(from_each[static_cast<size_t>(from)], part(from, c.rank(), id))
                    << from << " to " << c.rank() << ", round " << id;
            }
        }
        EXPECT_THROW((void)c.all_to_all({}), UsageError);
    });
}

TEST_P(Ranks, AgreeDeliversTheErrorOfTheLowestRankToEveryRank) {
    world().run([](Communicator& c) {
        const auto expect = [&](const std::function<void()>& work, ExitCode code,
                                const char* text) {
            try {
                c.agree(work);
                ADD_FAILURE() << "rank " << c.rank() << " did not learn of the error";
            } catch (const AgreedError& error) {
                EXPECT_EQ(error.exit_code(), code);
                EXPECT_THAT(error.what(), HasSubstr(text));
            }
        };
        EXPECT_NO_THROW(c.agree([] {}));
        const int last = c.size() - 1;
        const std::string name = "rank " + std::to_string(last);
        expect(
            [&] {
                if (c.rank() == last) throw InputFileError(name);
            },
            ExitCode::input_file, name.c_str());
        expect(
            [&] {
                if (c.rank() == last) throw std::bad_alloc();
            },
            ExitCode::out_of_memory, (name + ": out of memory").c_str());
        expect(
            [&] {
                if (c.rank() == last) throw std::runtime_error("plain");
            },
            ExitCode::failed, "plain");
        expect(
            [&] {
                if (c.rank() == 0) throw UsageError("of the lowest");
                throw InputFileError("of a higher rank");
            },
            ExitCode::usage, "of the lowest");
        c.barrier();  // still of use
    });
}

TEST_P(Ranks, SizeMismatchIsAnErrorAndNoHang) {
    for (const auto& [sent, expected] : {std::pair{10, 20}, std::pair{20, 10}}) {
        std::atomic<int> errors{0};
        std::atomic<int> size{0};
        world().run([&, sent = sent, expected = expected](Communicator& c) {
            Transport& t = c.transport();
            size = t.size();
            if (t.size() < 2 || t.rank() > 1) return;
            try {
                if (t.rank() == 0) send(t, 1, content(0, 0, static_cast<size_t>(sent)));
                if (t.rank() == 1) (void)receive(t, 0, static_cast<size_t>(expected));
            } catch (const CommunicationError& error) {
                ++errors;
                t.abort(error.what());  // wakes the other side, where the transport can
                EXPECT_THAT(error.what(), ::testing::AnyOf(HasSubstr("bytes, expected"),
                                                           HasSubstr("MPI_ERR_TRUNCATE")));
            }
            if (!kThreads) {
                EXPECT_EQ(errors.load(), t.rank()) << "the receiver, and only the receiver, knows";
            }
        });
        if (kThreads && size.load() > 1) {
            EXPECT_EQ(errors.load(), kSharedMemory ? 1 : 2) << "what fits into a ring has left";
        }
    }
}

TEST_P(Ranks, WorldsFollowOneAnotherAndMayOverlap) {
    for (int round = 0; round < 3; ++round) {
        TestWorld first = world();
        TestWorld second = world();
        for (TestWorld* one : {&first, &second, &first}) {
            one->run([](Communicator& c) {
                const auto all = c.all_gather(content(c.rank(), 1, 8));
                EXPECT_EQ(all.back(), content(c.size() - 1, 1, 8));
            });
        }
    }
}

TEST_P(Ranks, EveryRankRunsItsBodyOnceWithItsOwnNumber) {
    std::mutex mutex;
    std::vector<int> seen;
    TestWorld all = world();
    all.run([&](Communicator& c) {
        EXPECT_EQ(c.size(), all.size());
        const std::lock_guard lock(mutex);
        seen.push_back(c.rank());
    });
    std::sort(seen.begin(), seen.end());
    if (kThreads) {
        EXPECT_EQ(seen, all_of(GetParam()));
    } else {
        EXPECT_EQ(seen.size(), 1u);
    }
}

#ifdef VOCABPIPE_TEST_MPI

INSTANTIATE_TEST_SUITE_P(Mpi, Ranks, ::testing::Values(0),
                         [](const auto&) { return std::string("OfThisLaunch"); });

#else

INSTANTIATE_TEST_SUITE_P(Threads, Ranks, ::testing::Values(1, 2, 3, 5),
                         [](const auto& info) { return "p" + std::to_string(info.param); });

#endif

#if !defined(VOCABPIPE_TEST_MPI) && !defined(VOCABPIPE_TEST_SHARED_MEMORY)

// --- faults in a world of threads ---------------------------------------------------------------

TEST(WorldOfThreads, AbortWakesTheOthersWithTheFirstReason) {
    std::atomic<int> woken{0};
    World::threads(4).run([&](Communicator& c) {
        if (c.rank() == 2) {
            std::this_thread::sleep_for(milliseconds(20));
            c.transport().abort("the reason");
            c.transport().abort("a later reason");
            return;
        }
        try {
            (void)receive(c.transport(), 2, 8);
        } catch (const CommunicationError& error) {
            EXPECT_STREQ(error.what(), "the reason");
            c.transport().cancel();
            ++woken;
        }
    });
    EXPECT_EQ(woken.load(), 3);
}

struct Particular : std::runtime_error {
    using std::runtime_error::runtime_error;
};

TEST(WorldOfThreads, RankThatThrowsEndsTheRunWithItsOwnException) {
    for (int bad = 0; bad < 3; ++bad) {
        std::atomic<int> told{0};
        try {
            World::threads(3).run([&](Communicator& c) {
                if (c.rank() == bad) throw Particular("mine");
                try {
                    c.barrier();
                } catch (const CommunicationError& error) {
                    EXPECT_EQ(error.what(), "rank " + std::to_string(bad) + " failed: mine");
                    ++told;
                    throw;
                }
            });
            FAIL() << "no exception";
        } catch (const Particular& error) {
            EXPECT_STREQ(error.what(), "mine");
        }
        EXPECT_EQ(told.load(), 2);
    }
}

TEST(WorldOfThreads, ExceptionsThatAreNoneOfTheStandardsEndTheRunToo) {
    EXPECT_THROW(World::threads(2).run([](Communicator& c) {
        if (c.rank() == 1) throw 42;
        c.barrier();
    }),
                 int);
}

TEST(WorldOfThreads, DeadlineExpiresWithAnErrorThatSaysWhoWaited) {
    World world = World::threads(2, {.timeout_seconds = 0.2});
    const auto begin = std::chrono::steady_clock::now();
    try {
        world.run([](Communicator& c) {
            if (c.rank() == 0) c.barrier();
        });
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 0: the other ranks did not answer"));
    }
    const auto seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(seconds, milliseconds(200));
    EXPECT_LT(seconds, std::chrono::seconds(20));
}

TEST(WorldOfThreads, InterruptionEndsAWait) {
    World world = World::threads(2, {.timeout_seconds = 60, .interrupted = [] { return true; }});
    try {
        world.run([](Communicator& c) {
            if (c.rank() == 1) c.barrier();
        });
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1: told to end"));
    }
}

TEST(WorldOfThreads, LateSenderDoesNotWriteIntoMemoryOfARankThatGaveUp) {
    // Rank 0's wait ends at once and frees what it was to receive into; rank 1 sends afterwards.
    static thread_local int this_rank = -1;
    World world =
        World::threads(2, {.timeout_seconds = 30, .interrupted = [] { return this_rank == 0; }});
    for (int round = 0; round < 5; ++round) {
        std::atomic<bool> gone{false};
        EXPECT_THROW(world.run([&](Communicator& c) {
            this_rank = c.rank();
            const Bytes mine(100'000);
            if (c.rank() == 0) {
                try {
                    (void)c.all_gather(mine);
                } catch (const CommunicationError&) {
                    gone = true;  // not yet known to the world
                    std::this_thread::sleep_for(milliseconds(20));
                    throw;
                }
            }
            while (!gone) std::this_thread::yield();
            (void)c.all_gather(mine);
        }),
                     CommunicationError);
    }
}

TEST(WorldOfThreads, WorldIsOfUseAgainAfterAFailedRun) {
    World world = World::threads(3);
    for (int round = 0; round < 10; ++round) {
        EXPECT_THROW(world.run([&](Communicator& c) {
            if (c.rank() == round % 3) throw Particular("again");
            c.barrier();
        }),
                     Particular);
        EXPECT_NO_THROW(world.run([](Communicator& c) { c.barrier(); }));
    }
}

TEST(WorldOfThreads, RunProgramPrintsAnErrorOnceAndReturnsItsExitCode) {
    World world = World::threads(3, {.timeout_seconds = 10});
    const auto outcome = [&](const std::function<void(Communicator&)>& body) {
        ::testing::internal::CaptureStderr();
        const int code = world.run_program("me", body);
        return std::pair(code, ::testing::internal::GetCapturedStderr());
    };
    EXPECT_EQ(outcome([](Communicator&) {}), std::pair(0, std::string()));
    const auto agreed = [](Communicator& c) {
        c.agree([&] {
            if (c.rank() == 2) throw InputFileError("x: is damaged");
        });
    };
    EXPECT_EQ(outcome(agreed), std::pair(3, std::string("me: error: x: is damaged\n")));
    const auto alone = [](Communicator& c) {
        if (c.rank() == 1) throw UsageError("--flag: is wrong");
        c.barrier();
    };
    EXPECT_EQ(outcome(alone), std::pair(2, std::string("me: error: --flag: is wrong\n")));
    const auto other = [](Communicator&) { throw std::runtime_error("odd"); };
    EXPECT_EQ(outcome(other), std::pair(1, std::string("me: error: odd\n")));
    const auto memory = [](Communicator&) { throw std::bad_alloc(); };
    EXPECT_EQ(outcome(memory).first, 4);
}

TEST(WorldOfThreads, RefusesImpossibleNumbersOfRanks) {
    EXPECT_THROW((void)World::threads(0), UsageError);
    EXPECT_THROW((void)World::threads(-3), UsageError);
    EXPECT_THROW((void)World::threads(100'000), UsageError);
}

#endif

}  // namespace
}  // namespace vocabpipe
