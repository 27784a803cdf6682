// SPDX-License-Identifier: Apache-2.0
// Symmetric memory and its signals. One source, four programs (test_world.hpp); worlds of threads
// run every test by messages, too.
//
// VOCABPIPE_PROPERTY_CASES: ten times the random programs on each world (default 2000, with
// sanitizers 400).
#include "vocabpipe/symmetric_memory.hpp"
#include "src/runtime/tile_link/checks.hpp"
#include "tests/support/number_of_cases.hpp"
#include "tests/tiles/on_every_rank.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tile_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace vocabpipe {
namespace {

using Bytes = std::vector<std::byte>;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestWorld;

/// Ranks (under mpirun it is what mpirun started), and whether they use messages alone.
class SymmetricMemoryRanks : public ::testing::TestWithParam<std::tuple<int, bool>> {
protected:
    static void on_every_rank(const std::function<void(Communicator&)>& body) {
        testing::on_every_rank(TestWorld(std::get<0>(GetParam()), {.timeout_seconds = 10}),
                               std::get<1>(GetParam()), body);
    }
};

std::unique_ptr<SymmetricMemory> memory_of(Communicator& c, int64_t bytes, int signals) {
    return open_symmetric_memory(
        c, {.ranks = tile_link::all_ranks(c.size()), .bytes = bytes, .signals = signals});
}

TEST_P(SymmetricMemoryRanks, IsOpenOnAllWhenOneComputes) {
    on_every_rank([](Communicator& c) {
        const auto memory = memory_of(c, 8, 1);
        c.barrier();  // polls nothing of the memory
        memory->close();
    });
}

TEST_P(SymmetricMemoryRanks, PushThenWaitMovesATileAndRaisesItsSignal) {
    on_every_rank([](Communicator& c) {
        for (int64_t length : {1, 1000, 300'000}) {
            const auto memory = memory_of(c, length * c.size(), c.size());
            EXPECT_EQ(memory->bytes().size(), static_cast<size_t>(length * c.size()));
            EXPECT_EQ(std::ranges::count(memory->bytes(), std::byte{0}), length * c.size());
            memory->barrier();
            for (int m = 0; m < c.size(); ++m) {
                const Bytes mine(static_cast<size_t>(length), static_cast<std::byte>(c.rank() + 7));
                memory->push(m, mine, length * c.rank(), c.rank());
            }
            for (int m = 0; m < c.size(); ++m) {
                memory->wait(m, 1, {"gather", m, m});
                EXPECT_EQ(memory->raised(m), 1u);
                const auto part = memory->bytes().subspan(static_cast<size_t>(length * m),
                                                          static_cast<size_t>(length));
                EXPECT_EQ(std::ranges::count(part, static_cast<std::byte>(m + 7)), length);
            }
            memory->close();
        }
    });
}

TEST_P(SymmetricMemoryRanks, PullReadsWhatWasWrittenBeforeTheSignal) {
    on_every_rank([](Communicator& c) {
        const auto memory = memory_of(c, 5000, 1);
        std::ranges::fill(memory->bytes(), static_cast<std::byte>(c.rank() + 1));
        memory->notify_all(0);
        memory->wait(0, static_cast<uint64_t>(c.size()));
        for (int m = 0; m < c.size(); ++m) {
            Bytes there(3000);
            memory->pull(m, 1000, there);
            EXPECT_EQ(std::ranges::count(there, static_cast<std::byte>(m + 1)), 3000);
        }
        memory->close();
    });
}

TEST_P(SymmetricMemoryRanks, TilesHaveRowsAndColumns) {
    on_every_rank([](Communicator& c) {
        // A matrix of 8 x 12 bytes; the tile of rows 2-4 and columns 3-7 travels to the next rank.
        const auto memory = memory_of(c, 96 + 32, 2);
        for (size_t i = 0; i < 96; ++i) {
            memory->bytes()[i] = static_cast<std::byte>(i + 100 * static_cast<size_t>(c.rank()));
        }
        memory->barrier();
        const TilePlace tile{.offset = 2 * 12 + 3, .row_bytes = 5, .rows = 3, .stride = 12};
        const TilePlace apart{.offset = 96, .row_bytes = 5, .rows = 3, .stride = 9};
        const int next = (c.rank() + 1) % c.size();
        const int before = (c.rank() + c.size() - 1) % c.size();
        const auto expect = [&](int from) {
            for (size_t row = 0; row < 3; ++row) {
                for (size_t column = 0; column < 5; ++column) {
                    const size_t i = (row + 2) * 12 + column + 3 + 100 * static_cast<size_t>(from);
                    EXPECT_EQ(memory->bytes()[96 + row * 9 + column], static_cast<std::byte>(i));
                }
            }
            EXPECT_EQ(memory->bytes()[96 + 5], std::byte{0});
        };
        memory->push(next, tile, apart, 1);
        memory->wait(1, 1);
        expect(before);
        memory->barrier();
        memory->pull(next, tile, apart);
        expect(next);
        memory->close();
    });
}

TEST_P(SymmetricMemoryRanks, SignalsAreSeenInAnyOrderAndCount) {
    on_every_rank([](Communicator& c) {
        const auto memory = memory_of(c, 0, 20);
        const int next = (c.rank() + 1) % c.size();
        for (int signal = 0; signal < 20; ++signal) {
            for (int i = 0; i <= signal; ++i) memory->notify(next, signal);
        }
        for (int signal = 19; signal >= 0; --signal) {
            memory->wait(signal, static_cast<uint64_t>(signal) + 1);
            EXPECT_TRUE(memory->test(signal, static_cast<uint64_t>(signal)));
            EXPECT_FALSE(memory->test(signal, static_cast<uint64_t>(signal) + 2));
        }
        memory->close();
    });
}

TEST_P(SymmetricMemoryRanks, QuietComesBeforeAThirdRankIsTold) {
    on_every_rank([](Communicator& c) {
        if (c.size() < 3) return;
        const auto memory = memory_of(c, 200'000, 1);
        for (uint64_t round = 1; round <= 10; ++round) {
            if (c.rank() == 0) {
                memory->push(1, Bytes(200'000, static_cast<std::byte>(round)), 0);
                memory->quiet();
                memory->notify(2, 0);
            } else if (c.rank() == 2) {
                memory->wait(0, round);
                Bytes there(200'000);
                memory->pull(1, 0, there);
                EXPECT_EQ(std::ranges::count(there, static_cast<std::byte>(round)), 200'000);
            }
            memory->barrier();
        }
        memory->close();
    });
}

TEST_P(SymmetricMemoryRanks, RankSignalsAndBarriersAreApartFromTheOthers) {
    on_every_rank([](Communicator& c) {
        const auto memory = memory_of(c, 8, 1);
        const int next = (c.rank() + 1) % c.size();
        const int before = (c.rank() + c.size() - 1) % c.size();
        for (int round = 0; round < 20; ++round) {
            memory->bytes()[0] = static_cast<std::byte>(round);
            memory->rank_notify(before);
            memory->rank_wait(next);
            Bytes there(1);
            memory->pull(next, 0, there);
            EXPECT_EQ(there[0], static_cast<std::byte>(round));
            memory->barrier();
        }
        EXPECT_EQ(memory->raised(0), 0u);
        memory->close();
    });
}

TEST_P(SymmetricMemoryRanks, TeamsAndLinksDoNotDisturbEachOther) {
    on_every_rank([](Communicator& c) {
        std::vector<int> half;
        for (int r = c.rank() % 2; r < c.size(); r += 2) half.push_back(r);
        const auto link = open_tile_link(c, {.ranks = tile_link::all_ranks(c.size())});
        const auto all = memory_of(c, c.size(), 1);
        const auto team = open_symmetric_memory(c, {.ranks = half, .bytes = 8, .signals = 1});
        const std::vector<int64_t> ends{50'000, 100'000};
        const Bytes out(100'000, static_cast<std::byte>(c.rank()));
        std::vector<Bytes> in(static_cast<size_t>(c.size()), Bytes(100'000));
        const std::vector<TileLink::Outgoing> send(in.size(), {out, ends});
        std::vector<TileLink::Incoming> receive;
        for (Bytes& part : in) receive.push_back({part, ends});
        TileLink::Operation op = link->all_to_all(send, receive, {"beside"});
        for (int m = 0; m < c.size(); ++m) op.release(m, 1);
        team->notify_all(0);
        team->wait(0, half.size());
        const std::byte mine = static_cast<std::byte>(c.rank());
        for (int m = 0; m < c.size(); ++m) all->push(m, std::span(&mine, 1), c.rank(), 0);
        for (int m = 0; m < c.size(); ++m) op.release(m, 2);
        all->wait(0, static_cast<uint64_t>(c.size()));
        for (int m = 0; m < c.size(); ++m) {
            EXPECT_EQ(all->bytes()[static_cast<size_t>(m)], static_cast<std::byte>(m));
        }
        op.finish();
        for (int m = 0; m < c.size(); ++m) {
            const Bytes& part = in[static_cast<size_t>(m)];
            EXPECT_EQ(std::ranges::count(part, static_cast<std::byte>(m)), 100'000);
        }
        team->close();
        all->close();
    });
}

TEST_P(SymmetricMemoryRanks, RefusesWhatDoesNotFit) {
    on_every_rank([](Communicator& c) {
        const auto memory = memory_of(c, 100, 2);
        const Bytes ten(10);
        Bytes to(10);
        EXPECT_THROW(memory->push(c.size(), ten, 0), UsageError);
        EXPECT_THROW(memory->push(-1, ten, 0), UsageError);
        EXPECT_THROW(memory->push(0, ten, 91), UsageError);
        EXPECT_THROW(memory->push(0, ten, -1), UsageError);
        EXPECT_THROW(memory->push(0, ten, 0, 2), UsageError);
        EXPECT_THROW(memory->pull(0, 91, to), UsageError);
        EXPECT_THROW(memory->notify(0, SymmetricMemory::kNoSignal), UsageError);
        EXPECT_THROW(memory->wait(2, 1), UsageError);
        const TilePlace tile{.offset = 0, .row_bytes = 10, .rows = 2, .stride = 20};
        EXPECT_THROW(memory->push(0, tile, {0, 20, 1, 0}), UsageError);
        EXPECT_THROW(memory->push(0, tile, {75, 10, 2, 20}), UsageError);
        EXPECT_THROW(memory->push(0, tile, {0, 10, 2, 5}), UsageError);
        EXPECT_THROW((void)memory_of(c, -1, 0), UsageError);
        EXPECT_THROW((void)open_symmetric_memory(c, {.ranks = {c.size()}}), UsageError);
        memory->close();
        EXPECT_THROW(memory->barrier(), UsageError);
        if (c.size() > 1) {
            EXPECT_THROW((void)memory_of(c, c.rank() == 0 ? 8 : 9, 0), UsageError);
        }
        c.barrier();
    });
}

// --- random programs -----------------------------------------------------------------------------

/// A tile that one rank gives to another: made new, or from one that was given to its maker.
struct Gift {
    int from, to, parent;
    bool pulled;
    TilePlace place;
};

/// A program that ends however ranks are delayed: a rank waits only for earlier gifts, and each
/// gift has its own place and signal.
std::vector<Gift> random_program(std::mt19937& random, int ranks) {
    std::vector<Gift> gifts;
    int64_t at = 0;
    for (auto left = 5 + random() % 25; left > 0; --left) {
        Gift gift{.from = static_cast<int>(random() % static_cast<unsigned>(ranks)),
                  .to = static_cast<int>(random() % static_cast<unsigned>(ranks)),
                  .parent = -1,
                  .pulled = random() % 3 == 0,
                  .place = {}};
        if (!gifts.empty() && random() % 4 != 0) {  // relays
            gift.parent = static_cast<int>(random() % gifts.size());
            gift.from = gifts[static_cast<size_t>(gift.parent)].to;
        }
        const int64_t row = static_cast<int64_t>(random() % (random() % 10 == 0 ? 20'000 : 200));
        const auto rows = static_cast<int64_t>(1 + random() % 3);
        const int64_t stride = row + static_cast<int64_t>(random() % 10);
        gift.place = {.offset = at, .row_bytes = row, .rows = rows, .stride = stride};
        at += rows * stride;
        gifts.push_back(gift);
    }
    return gifts;
}

void run_program(Communicator& c, unsigned seed) {
    std::mt19937 common(seed);
    std::mt19937 random(seed * 977 + static_cast<unsigned>(c.rank()));
    const std::vector<Gift> gifts = random_program(common, c.size());
    const TilePlace& last = gifts.back().place;
    const auto memory =
        memory_of(c, last.offset + last.rows * last.stride, static_cast<int>(gifts.size()));
    const auto delay = [&] {
        if (random() % 5 != 0) return;
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    };
    // A tile's bytes are those of its row in its parent's chain: number of the root, and length.
    std::vector<int> root(gifts.size()), generation(gifts.size());
    for (size_t i = 0; i < gifts.size(); ++i) {
        const auto parent = static_cast<size_t>(std::max(gifts[i].parent, 0));
        root[i] = gifts[i].parent < 0 ? static_cast<int>(i) : root[parent];
        generation[i] = gifts[i].parent < 0 ? 0 : generation[parent] + 1;
    }
    const auto bytes_of = [&](size_t i) {
        return static_cast<std::byte>(root[i] * 37 + generation[i] * 5 + 1);
    };
    std::vector<bool> there(gifts.size());
    const auto take = [&](size_t i) {
        if (there[i]) return;
        const Gift& gift = gifts[i];
        memory->wait(static_cast<int>(i), 1, {"program", static_cast<int64_t>(i), gift.from});
        if (gift.pulled) memory->pull(gift.from, gift.place, gift.place);
        const TilePlace& place = gift.place;
        for (int64_t row = 0; row < place.rows; ++row) {
            const auto part =
                memory->bytes().subspan(static_cast<size_t>(place.offset + row * place.stride),
                                        static_cast<size_t>(place.row_bytes));
            ASSERT_EQ(std::ranges::count(part, bytes_of(i)), place.row_bytes);
        }
        there[i] = true;
    };
    for (size_t i = 0; i < gifts.size(); ++i) {
        const Gift& gift = gifts[i];
        if (gift.from != c.rank()) continue;
        delay();
        if (gift.parent >= 0) take(static_cast<size_t>(gift.parent));
        for (int64_t row = 0; row < gift.place.rows; ++row) {
            const auto first = static_cast<size_t>(gift.place.offset + row * gift.place.stride);
            std::ranges::fill(
                memory->bytes().subspan(first, static_cast<size_t>(gift.place.row_bytes)),
                gift.parent < 0
                    ? bytes_of(i)
                    : static_cast<std::byte>(
                          static_cast<int>(bytes_of(static_cast<size_t>(gift.parent))) + 5));
        }
        if (gift.pulled) {
            memory->notify(gift.to, static_cast<int>(i));
        } else {
            memory->push(gift.to, gift.place, gift.place, static_cast<int>(i));
        }
    }
    std::vector<size_t> mine;
    for (size_t i = 0; i < gifts.size(); ++i) {
        if (gifts[i].to == c.rank()) mine.push_back(i);
    }
    std::shuffle(mine.begin(), mine.end(), random);
    for (const size_t i : mine) {
        delay();
        take(i);
    }
    memory->close();
}

TEST_P(SymmetricMemoryRanks, RandomProgramsEndWithTheRightBytesWhateverTheDelays) {
    const int programs = std::max(1, testing::number_of_cases(2000) / 10);
    on_every_rank([&](Communicator& c) {
        for (int seed = 0; seed < programs; ++seed) run_program(c, static_cast<unsigned>(seed));
        c.barrier();
    });
}

#ifdef VOCABPIPE_TEST_MPI

INSTANTIATE_TEST_SUITE_P(Mpi, SymmetricMemoryRanks,
                         ::testing::Combine(::testing::Values(0), ::testing::Bool()));

#else

INSTANTIATE_TEST_SUITE_P(Threads, SymmetricMemoryRanks,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()),
                         [](const auto& info) {
                             return std::to_string(std::get<0>(info.param)) +
                                    (std::get<1>(info.param) ? "Messages" : "");
                         });

// --- faults --------------------------------------------------------------------------------------

/// Serves the others for a while.
void stay(SymmetricMemory& memory, std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
        memory.poll();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
}

class SymmetricMemoryFaults : public ::testing::TestWithParam<bool> {
protected:
    /// What a world of two ends with.
    static std::string error_of(WaitOptions wait, const std::function<void(Communicator&)>& body) {
        try {
            testing::on_every_rank(TestWorld(2, std::move(wait)), GetParam(), body);
        } catch (const CommunicationError& error) {
            EXPECT_EQ(error.exit_code(), ExitCode::communication);
            return error.what();
        }
        return "no exception";
    }
};

TEST_P(SymmetricMemoryFaults, ASignalThatNeverComesIsNamedInTime) {
    const std::string error = error_of({.timeout_seconds = 0.3}, [](Communicator& c) {
        const auto memory = memory_of(c, 8, 6);
        if (c.rank() == 1) {
            memory->notify(0, 5);
            stay(*memory, std::chrono::seconds(2));
        }
        if (c.rank() == 0) memory->wait(5, 2, {"ring all-gather of x", 3, 1});
    });
    EXPECT_THAT(error, AllOf(HasSubstr("rank 0: ring all-gather of x: waits for tile 3 (signal 5, "
                                       "raised 1 of 2 times) of member 1 (rank 1) for 0."),
                             HasSubstr("no progress within")));
}

TEST_P(SymmetricMemoryFaults, AMemberThatDoesNotOpenIsNamed) {
    EXPECT_THAT(error_of({.timeout_seconds = 0.3},
                         [](Communicator& c) {
                             if (c.rank() == 0) (void)memory_of(c, 8, 1);
                         }),
                HasSubstr("rank 0: opening of symmetric memory: waits for member 1 (rank 1)"));
}

TEST_P(SymmetricMemoryFaults, AMemberThatDoesNotCloseIsNamed) {
    EXPECT_THAT(error_of({.timeout_seconds = 0.3},
                         [](Communicator& c) {
                             const auto memory = memory_of(c, 8, 1);
                             if (c.rank() == 0) memory->close();
                         }),
                HasSubstr("rank 0: barrier of symmetric memory: waits for barrier 1 of member 1"));
}

TEST_P(SymmetricMemoryFaults, AMemberThatFailsEndsTheOthersWithItsReason) {
    std::string other;
    const auto body = [&](Communicator& c) {
        const auto memory = memory_of(c, 8, 1);
        if (c.rank() == 1) {
            stay(*memory, std::chrono::milliseconds(100));
            throw CommunicationError("rank 1 is out of rows");
        }
        try {
            memory->rank_wait(1, {.operation = "hop"});
        } catch (const CommunicationError& error) {
            other = error.what();
            EXPECT_THROW(memory->barrier(), CommunicationError);
            throw;
        }
    };
    EXPECT_THAT(error_of({.timeout_seconds = 30}, body), HasSubstr("rank 1 is out of rows"));
    EXPECT_THAT(other, AllOf(HasSubstr("rank 0: hop: waits for rank signal 1 of member 1 (rank 1)"),
                             HasSubstr("rank 1 failed")));
}

TEST_P(SymmetricMemoryFaults, InterruptionEndsAWait) {
    thread_local bool waits = false;
    EXPECT_THAT(error_of({.timeout_seconds = 60, .interrupted = [] { return waits; }},
                         [](Communicator& c) {
                             const auto memory = memory_of(c, 8, 1);
                             c.barrier();
                             waits = true;
                             if (c.rank() == 0) memory->wait(0, 1, {"hop", 2, 1});
                         }),
                AllOf(HasSubstr("rank 0: hop: waits for tile 2"), HasSubstr("told to end")));
}

INSTANTIATE_TEST_SUITE_P(By, SymmetricMemoryFaults, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Messages" : "Memory"; });

#endif

}  // namespace
}  // namespace vocabpipe
