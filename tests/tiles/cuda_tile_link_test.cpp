// SPDX-License-Identifier: Apache-2.0
// Tile links between GPUs against plain copies: ranks are threads, the pass is a stream that makes
// pieces, reads what has arrived and reuses memory at once. On the stand-in streams are threads, so
// that ThreadSanitizer sees an event that is missing; its NCCL ends the process when a rule of
// NCCL is broken. The same against the real toolkit where there is a GPU.
#include "src/runtime/device/cuda/handles.hpp"
#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/streams.hpp"
#include "src/runtime/transport/device_copies/transport.hpp"
#include "src/runtime/transport/nccl/transport.hpp"
#include "tests/runtime/cuda_interruption.hpp"
#include "tests/runtime/nccl_end.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using testing::DeviceBytes;
using testing::gpus_for_nccl;
using ::testing::HasSubstr;
using testing::HostBytes;

constexpr auto kPoison = static_cast<std::byte>(0xdb);

/// One rank: a stream for its pass, and a transport. Links are made with it.
struct PassEnd {
    PassEnd(Communicator& c, CudaTransport kind) : control(c) {
        (void)cudaSetDevice(kind == CudaTransport::nccl ? testing::gpu_of(c.rank()) : 0);
        for (cuda::Stream& one : lanes) one = cuda::make_stream(0);
        pass = cuda::make_stream(0);
        const TransportStreams streams{lanes[0].get(), lanes[1].get(), lanes[2].get()};
        transport = kind == CudaTransport::nccl ? nccl::make_transport(c, streams)
                                                : device_copies::make_transport(c, streams);
    }
    [[nodiscard]] std::unique_ptr<TileLink> link(std::vector<int> ranks = {},
                                                 Channel channel = Channel::tensor) const {
        if (ranks.empty()) ranks = tile_link::all_ranks(control.size());
        return make_stream_tile_link(*transport, control.wait_options(), pass.get(),
                                     {.ranks = std::move(ranks), .poll = {}}, channel);
    }
    /// A pass writes to, or reads from, the GPU's memory. `host` must stay until it is drained.
    void write(std::span<std::byte> target, const HostBytes& host) const {
        copy(target.data(), host.data(), target.size());
    }
    void read(HostBytes& host, std::span<const std::byte> source) const {
        copy(host.data(), source.data(), source.size());
    }
    void drain() const { cuda::check(cudaStreamSynchronize(pass.get()), "cudaStreamSynchronize"); }
    /// As the executor waits: a rank that has failed meanwhile is an error, not a hang.
    void drain_or_fail() const {
        while (true) {
            const cudaError_t state = cudaStreamQuery(pass.get());
            if (state == cudaSuccess) return;
            if (state != cudaErrorNotReady) cuda::check(state, "cudaStreamQuery");
            transport->check_health();
            std::this_thread::yield();
        }
    }
    Communicator& control;
    std::array<cuda::Stream, 3> lanes;
    cuda::Stream pass;
    std::unique_ptr<Transport> transport;

private:
    void copy(void* to, const void* from, size_t bytes) const {
        if (bytes == 0) return;
        cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, pass.get()),
                    "cudaMemcpyAsync");
    }
};

/// Bytes of piece `piece` of what `from` sends `to` in operation `id`.
HostBytes piece_content(int from, int to, int id, int piece, size_t size) {
    std::minstd_rand random(static_cast<unsigned>(((from * 17 + to) * 131 + id) * 31 + piece + 1));
    HostBytes bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
    return bytes;
}

/// Where pieces end, [from][to], the same on every rank: it depends on the seed only.
using Ends = std::vector<std::vector<std::vector<int64_t>>>;

Ends random_ends(unsigned seed, int members) {
    std::mt19937 random(seed);
    Ends all(static_cast<size_t>(members));
    for (auto& row : all) {
        row.resize(static_cast<size_t>(members));
        for (std::vector<int64_t>& ends : row) {
            const int pieces = random() % 4 == 0 ? 0 : static_cast<int>(random() % 6);
            int64_t at = 0;
            for (int i = 0; i < pieces; ++i) {
                at += random() % 5 == 0 ? 0 : static_cast<int64_t>(1 + random() % 700);
                ends.push_back(at);
            }
        }
    }
    return all;
}

size_t bytes_of(const std::vector<int64_t>& ends) {
    return ends.empty() ? 0 : static_cast<size_t>(ends.back());
}

/// One rank's part of an operation: memory of its GPU, what its pass writes and what it has read.
struct PassMemory {
    struct Piece {
        int from = 0;
        HostBytes read, expected;
    };
    PassMemory(const Ends& ends, int self, int id)
        : ends_(ends), self_(static_cast<size_t>(self)), id_(id) {
        for (size_t m = 0; m < ends.size(); ++m) {
            out.emplace_back(bytes_of(ends[self_][m]));
            in.emplace_back(bytes_of(ends[m][self_]));
        }
        for (size_t m = 0; m < ends.size(); ++m) {
            send.push_back({out[m].span(), ends[self_][m]});
            receive.push_back({in[m].span(), ends[m][self_]});
            poison.resize(std::max({poison.size(), out[m].span().size(), in[m].span().size()}),
                          kPoison);
        }
    }
    [[nodiscard]] int pieces_to(int m) const {
        return static_cast<int>(ends_[self_][static_cast<size_t>(m)].size());
    }
    [[nodiscard]] int pieces_from(int m) const {
        return static_cast<int>(ends_[static_cast<size_t>(m)][self_].size());
    }
    void poison_received(const PassEnd& pass) {
        for (const DeviceBytes& part : in) pass.write(part.span(), poison);
    }
    void poison_sent(const PassEnd& pass) {
        for (const DeviceBytes& part : out) pass.write(part.span(), poison);
    }
    /// Only then may the piece be released.
    void make(const PassEnd& pass, int m, int piece) {
        const auto target = piece_at(out[static_cast<size_t>(m)].span(),
                                     ends_[self_][static_cast<size_t>(m)], piece);
        made.push_back(std::make_unique<HostBytes>(
            piece_content(static_cast<int>(self_), m, id_, piece, target.size())));
        pass.write(target, *made.back());
    }
    void use(const PassEnd& pass, int m, int piece) {
        const auto source = piece_at(in[static_cast<size_t>(m)].span(),
                                     ends_[static_cast<size_t>(m)][self_], piece);
        used.push_back(std::make_unique<Piece>(Piece{
            .from = m,
            .read = HostBytes(source.size()),
            .expected = piece_content(m, static_cast<int>(self_), id_, piece, source.size())}));
        pass.read(used.back()->read, source);
    }
    /// After drain().
    void check() const {
        for (const auto& piece : used) {
            EXPECT_EQ(piece->read, piece->expected) << "of member " << piece->from;
        }
    }
    static std::span<std::byte> piece_at(std::span<std::byte> part,
                                         const std::vector<int64_t>& ends, int piece) {
        const auto at = static_cast<size_t>(piece);
        const int64_t begin = piece == 0 ? 0 : ends[at - 1];
        return part.subspan(static_cast<size_t>(begin), static_cast<size_t>(ends[at] - begin));
    }

    const Ends& ends_;
    size_t self_;
    int id_;
    std::vector<DeviceBytes> out, in;
    std::vector<TileLink::Outgoing> send;
    std::vector<TileLink::Incoming> receive;
    HostBytes poison;
    std::vector<std::unique_ptr<HostBytes>> made;
    std::vector<std::unique_ptr<Piece>> used;
};

/// Makes and releases pieces in a random order of this rank's own, then uses what has come.
void run_operation(const PassEnd& pass, TileLink& link, PassMemory& memory, std::mt19937& random,
                   TileLink::Order order_of_steps = TileLink::Order::by_member) {
    memory.poison_received(pass);
    TileLink::Operation op =
        link.all_to_all(memory.send, memory.receive, {"exchange", 3}, order_of_steps);
    std::vector<int> order, made(static_cast<size_t>(link.size()), 0);
    for (int m = 0; m < link.size(); ++m) {
        order.insert(order.end(), static_cast<size_t>(memory.pieces_to(m)), m);
    }
    if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    for (const int m : order) {
        int& done = made[static_cast<size_t>(m)];
        memory.make(pass, m, done);
        op.release(m, ++done);
        const int from = static_cast<int>(random() % static_cast<unsigned>(link.size()));
        (void)op.test(from, memory.pieces_from(from));
        link.poll();
    }
    for (int i = 0; i < link.size(); ++i) {
        const int from = link.from(i);
        for (int piece = 0; piece < memory.pieces_from(from); ++piece) {
            op.wait(from, piece + 1);
            memory.use(pass, from, piece);
        }
    }
    op.finish();
    memory.poison_sent(pass);
    memory.poison_received(pass);
}

/// Until it throws: another rank has given up.
void wait_for_failure(Transport& transport, TileLink* link = nullptr) {
    while (true) {
        if (link != nullptr) link->poll();
        transport.check_health();
        std::this_thread::yield();
    }
}

struct LinkCase {
    CudaTransport transport;
    int ranks;
};

class CudaTileLink : public ::testing::TestWithParam<LinkCase> {
protected:
    void SetUp() override {
        const int gpus = gpus_for_nccl();
        const bool fits =
            GetParam().transport == CudaTransport::nccl ? gpus >= GetParam().ranks : gpus > 0;
        if (!fits) GTEST_SKIP() << "needs more GPUs than the " << gpus << " there are";
    }
    void TearDown() override { delay(0); }
    static void delay([[maybe_unused]] unsigned seed) {
#ifdef VOCABPIPE_ON_STAND_IN
        cuda_stand_in::set_delays(
            {.seed = seed, .longest = std::chrono::microseconds(seed == 0 ? 0 : 150)});
#endif
    }
    template <typename Work>
    static void run(Work&& work, double timeout_seconds = 30) {
        World::threads(GetParam().ranks, {.timeout_seconds = timeout_seconds})
            .run([&](Communicator& c) {
                const PassEnd pass(c, GetParam().transport);
                work(c, pass);
            });
    }
};

TEST_P(CudaTileLink, PiecesOfAnySizeArriveInManyOperationsInARow) {
    for (unsigned round = 0; round < 4; ++round) {
        delay(round);
        run([&](Communicator& c, const PassEnd& pass) {
            const auto link = pass.link();
            EXPECT_EQ(link->rank(), c.rank());
            EXPECT_EQ(link->size(), c.size());
            std::mt19937 random(static_cast<unsigned>(c.rank()) + 17 * round);
            std::vector<Ends> ends;
            for (unsigned i = 0; i < 5; ++i) ends.push_back(random_ends(5 * round + i, c.size()));
            std::vector<std::unique_ptr<PassMemory>> memory;
            for (int i = 0; i < 5; ++i) {
                memory.push_back(
                    std::make_unique<PassMemory>(ends[static_cast<size_t>(i)], c.rank(), i));
            }
            const auto order =
                round % 2 == 0 ? TileLink::Order::by_member : TileLink::Order::by_piece;
            for (const auto& one : memory) run_operation(pass, *link, *one, random, order);
            pass.drain();
            for (const auto& one : memory) one->check();
        });
    }
}

/// The same memory in every operation: the next one must wait for the pass, and the pass for it.
TEST_P(CudaTileLink, MemoryMayBeUsedAgainAtOnce) {
    run([&](Communicator& c, const PassEnd& pass) {
        const auto link = pass.link();
        Ends ends(static_cast<size_t>(c.size()));
        for (auto& row : ends) row.assign(static_cast<size_t>(c.size()), {300, 500, 512});
        PassMemory memory(ends, c.rank(), 0);
        std::mt19937 random(static_cast<unsigned>(c.rank()));
        for (int i = 0; i < 12; ++i) run_operation(pass, *link, memory, random);
        pass.drain();
        memory.check();
    });
}

/// The root sends, the others have nothing to release: they wait at once.
TEST_P(CudaTileLink, BroadcastReachesMembersThatReleaseNothing) {
    run([&](Communicator& c, const PassEnd& pass) {
        const auto link = pass.link();
        for (int root = 0; root < c.size(); ++root) {
            Ends ends(static_cast<size_t>(c.size()),
                      std::vector<std::vector<int64_t>>(static_cast<size_t>(c.size())));
            for (int m = 0; m < c.size(); ++m) {
                if (m != root) ends[static_cast<size_t>(root)][static_cast<size_t>(m)] = {64, 90};
            }
            PassMemory memory(ends, c.rank(), root);
            TileLink::Operation op = link->all_to_all(memory.send, memory.receive, {"broadcast"});
            for (int i = 1; c.rank() == root && i < c.size(); ++i) {
                for (const int piece : {0, 1}) memory.make(pass, link->to(i), piece);
                op.release(link->to(i), 2);
            }
            for (int piece = 0; c.rank() != root && piece < 2; ++piece) {
                op.wait(root, piece + 1);
                memory.use(pass, root, piece);
            }
            op.finish();
            memory.poison_sent(pass);
            pass.drain();
            memory.check();
        }
    });
}

/// Even and odd ranks are teams of one channel, and all of them another one's.
TEST_P(CudaTileLink, TeamsOnBothChannelsDoNotDisturbEachOther) {
    run([&](Communicator& c, const PassEnd& pass) {
        std::vector<int> ranks;
        for (int r = c.rank() % 2; r < c.size(); r += 2) ranks.push_back(r);
        const auto team = pass.link(ranks, Channel::expert);
        const auto all = pass.link();
        EXPECT_EQ(team->rank(), c.rank() / 2);
        std::mt19937 random(static_cast<unsigned>(c.rank()));
        for (unsigned seed = 40; seed < 44; ++seed) {
            const Ends inner = random_ends(seed, team->size());
            const Ends outer = random_ends(seed, all->size());
            PassMemory of_team(inner, team->rank(), 1);
            PassMemory of_all(outer, c.rank(), 2);
            run_operation(pass, *team, of_team, random);
            run_operation(pass, *all, of_all, random);
            pass.drain();
            of_team.check();
            of_all.check();
        }
    });
}

/// Steps of a link and messages of the transport in one order, as NCCL wants its launches.
TEST_P(CudaTileLink, StepsAndTransfersShareOneOrder) {
    run([&](Communicator& c, const PassEnd& pass) {
        const std::vector<int> ranks = tile_link::all_ranks(c.size());
        if (c.size() > 1) pass.transport->prepare({{Do::all_gather, Lane::collective, ranks, -1}});
        const auto link = pass.link();
        Ends ends(static_cast<size_t>(c.size()));
        for (auto& row : ends) row.assign(static_cast<size_t>(c.size()), {40, 80, 120});
        PassMemory memory(ends, c.rank(), 0);
        const DeviceBytes mine(HostBytes(8, static_cast<std::byte>(c.rank() + 1)));
        const DeviceBytes everyones(8 * ranks.size());
        TileLink::Operation op = link->all_to_all(memory.send, memory.receive, {"exchange"});
        std::vector<Ticket> tickets;
        for (int i = 0; i < c.size(); ++i) {
            for (int piece = 0; piece < 3; ++piece) {
                memory.make(pass, link->to(i), piece);
                op.release(link->to(i), piece + 1);
            }
            tickets.push_back(pass.transport->start({.what = Do::all_gather,
                                                     .channel = Channel::collective,
                                                     .ranks = ranks,
                                                     .send = mine.span(),
                                                     .receive = everyones.span()}));
        }
        op.finish();
        for (const Ticket ticket : tickets) {
            while (!pass.transport->test(ticket)) std::this_thread::yield();
        }
        pass.drain();
        cuda::check(cudaStreamSynchronize(pass.lanes[2].get()), "cudaStreamSynchronize");
        const HostBytes read = everyones.read();
        for (size_t i = 0; i < read.size(); ++i) {
            EXPECT_EQ(read[i], static_cast<std::byte>(i / 8 + 1));
        }
    });
}

/// However far behind the streams are: the pass's stream holds work that the test lets go last.
TEST_P(CudaTileLink, HostWaitsForNoStream) {
#ifdef VOCABPIPE_ON_STAND_IN
    run([&](Communicator& c, const PassEnd& pass) {
        const auto link = pass.link();
        Ends ends(static_cast<size_t>(c.size()));
        for (auto& row : ends) row.assign(static_cast<size_t>(c.size()), {100, 200});
        PassMemory memory(ends, c.rank(), 0);
        std::mt19937 random(static_cast<unsigned>(c.rank()));
        c.barrier();
        const cuda_stand_in::Counters before = cuda_stand_in::counters();
        c.barrier();
        std::atomic<bool> let_go{false};
        testing::hold_up(pass.pass.get(), let_go);
        run_operation(pass, *link, memory, random);
        EXPECT_EQ(cudaStreamQuery(pass.pass.get()), cudaErrorNotReady);
        c.barrier();
        const cuda_stand_in::Counters after = cuda_stand_in::counters();
        EXPECT_EQ(after.stream_synchronisations, before.stream_synchronisations);
        EXPECT_EQ(after.event_synchronisations, before.event_synchronisations);
        c.barrier();
        let_go = true;
        pass.drain();
        memory.check();
    });
#endif
}

TEST_P(CudaTileLink, RefusesWhatDoesNotFit) {
    run([&](Communicator& c, const PassEnd& pass) {
        const auto refused = [&](std::vector<int> ranks) {
            return make_stream_tile_link(*pass.transport, c.wait_options(), pass.pass.get(),
                                         {.ranks = std::move(ranks), .poll = {}});
        };
        EXPECT_THROW((void)refused({c.rank(), c.rank()}), UsageError);
        EXPECT_THROW((void)refused({c.rank(), c.size()}), UsageError);
        EXPECT_THROW(
            (void)make_stream_tile_link(c.transport(), c.wait_options(), pass.pass.get(),
                                        {.ranks = tile_link::all_ranks(c.size()), .poll = {}}),
            UsageError);
        const auto link = pass.link();
        Ends ends(static_cast<size_t>(c.size()));
        for (auto& row : ends) row.assign(static_cast<size_t>(c.size()), {10});
        PassMemory memory(ends, c.rank(), 0);
        auto fewer = memory.send;
        fewer.pop_back();
        EXPECT_THROW((void)link->all_to_all(fewer, memory.receive, {"x"}), UsageError);
        TileLink::Operation op = link->all_to_all(memory.send, memory.receive, {"x"});
        EXPECT_THROW((void)link->all_to_all(memory.send, memory.receive, {"x"}), UsageError);
        EXPECT_THROW(op.release(0, 2), UsageError);
        EXPECT_THROW(op.wait(0, 2), UsageError);
        EXPECT_THROW(op.wait(c.rank(), 1), UsageError);
        EXPECT_THROW(op.finish(), UsageError);
        if (c.size() > 1) {
            try {
                op.wait(link->from(1), 1);
                ADD_FAILURE() << "no exception";
            } catch (const UsageError& error) {
                EXPECT_THAT(error.what(), HasSubstr("before it has released piece 0 for member"));
            }
        }
        for (int i = 0; i < c.size(); ++i) op.release(link->to(i), 1);
        op.finish();
        pass.drain();
    });
}

/// A rank that ends within an operation leaves nobody waiting, and no stream in memory that goes.
TEST_P(CudaTileLink, MemberThatFailsEndsTheOthers) {
    if (GetParam().ranks < 2) return;
    for (unsigned round = 0; round < 3; ++round) {
        delay(round);
        try {
            run([&](Communicator& c, const PassEnd& pass) {
                const auto link = pass.link();
                Ends ends(static_cast<size_t>(c.size()));
                for (auto& row : ends) row.assign(static_cast<size_t>(c.size()), {500, 1000});
                PassMemory memory(ends, c.rank(), 0);
                std::mt19937 random(static_cast<unsigned>(c.rank()));
                try {
                    for (int i = 0; i < 3; ++i) {
                        run_operation(pass, *link, memory, random);
                        if (c.rank() != 1 || i != 1) continue;
                        TileLink::Operation op =
                            link->all_to_all(memory.send, memory.receive, {"the last"});
                        for (int m = 0; m < c.size(); ++m) op.release(m, 1);
                        throw DeviceError("the layer gave up");
                    }
                    wait_for_failure(*pass.transport);
                } catch (const std::exception&) {
                    pass.transport->cancel();
                    pass.drain();
                    throw;
                }
            });
            FAIL() << "no exception";
        } catch (const DeviceError& error) {
            EXPECT_THAT(error.what(), HasSubstr("the layer gave up"));
        }
    }
}

TEST_P(CudaTileLink, MemberThatDoesNotReleaseIsNamed) {
    if (GetParam().ranks < 2 || GetParam().transport == CudaTransport::nccl) return;
    std::string text;
    try {
        run(
            [&](Communicator& c, const PassEnd& pass) {
                const auto link = pass.link();
                Ends ends(static_cast<size_t>(c.size()));
                for (auto& row : ends) row.assign(static_cast<size_t>(c.size()), {500, 1000});
                PassMemory memory(ends, c.rank(), 0);
                TileLink::Operation op =
                    link->all_to_all(memory.send, memory.receive, {"all-gather of x", 7});
                for (int m = 0; m < c.size(); ++m) op.release(m, c.rank() == 1 ? 1 : 2);
                if (c.rank() == 1) wait_for_failure(c.transport(), link.get());
                op.finish();
            },
            0.3);
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        text = error.what();
        EXPECT_EQ(error.exit_code(), ExitCode::communication);
    }
    // Piece 1, or on a machine that is slow piece 0, which rank 1 has not taken in time.
    EXPECT_THAT(text, AllOf(HasSubstr(": all-gather of x, layer 7: waits for piece "),
                            HasSubstr(" of member "),
                            HasSubstr("no progress within --distributed-timeout-seconds")));
}

/// Whatever call of a rank fails, in making a link or in an operation: all ranks end, with an error
/// that has a name.
TEST_P(CudaTileLink, AnyCallMayFailAndAllRanksEnd) {
#ifdef VOCABPIPE_ON_STAND_IN
    if (GetParam().ranks < 2) return;
    int failures = 0;
    for (unsigned seed = 0; seed < 40; ++seed) {
        const int failing = static_cast<int>(seed) % GetParam().ranks;
        const uint64_t call = 1 + seed * 7;
        SCOPED_TRACE(::testing::Message() << "call " << call << " of rank " << failing);
        try {
            run([&](Communicator& c, const PassEnd& pass) {
                if (c.rank() == failing) {
                    cuda_stand_in::fail_call_of_this_thread(cudaErrorLaunchFailure, call);
                }
                try {
                    const auto link = pass.link();
                    std::mt19937 random(static_cast<unsigned>(c.rank()));
                    for (unsigned i = 0; i < 4; ++i) {
                        const Ends ends = random_ends(60 + i, c.size());
                        PassMemory memory(ends, c.rank(), 0);
                        try {
                            run_operation(pass, *link, memory, random);
                            pass.drain_or_fail();
                        } catch (const std::exception&) {
                            pass.transport->cancel();
                            (void)cudaStreamSynchronize(pass.pass.get());
                            throw;
                        }
                        memory.check();
                    }
                } catch (const std::exception&) {
                    pass.transport->cancel();
                    throw;
                }
                cuda_stand_in::fail_call_of_this_thread(cudaSuccess, 0);
            });
        } catch (const Error& error) {
            ++failures;
            EXPECT_THAT(error.exit_code(),
                        ::testing::AnyOf(ExitCode::device, ExitCode::communication))
                << error.what();
        }
    }
    EXPECT_GT(failures, 10) << "many of the 40 runs are hit";
#endif
}

/// Rank 0 drops an operation while its stream waits to copy into the memory, which goes next.
TEST_P(CudaTileLink, OperationThatGoesHasLeftItsMemory) {
#ifdef VOCABPIPE_ON_STAND_IN
    if (GetParam().ranks != 2 || GetParam().transport == CudaTransport::nccl) return;
    std::atomic<bool> let_go{false};
    run([&](Communicator& c, const PassEnd& pass) {
        const auto link = pass.link();
        const Ends ends{{{}, {}}, {{1000}, {}}};
        PassMemory memory(ends, c.rank(), 0);
        if (c.rank() == 1) testing::hold_up(pass.pass.get(), let_go);
        auto op = std::make_unique<TileLink::Operation>(
            link->all_to_all(memory.send, memory.receive, {"hop"}));
        if (c.rank() == 1) {
            memory.make(pass, 0, 0);
            op->release(0, 1);
            op->finish();
            pass.drain();
            return;
        }
        op->wait(1, 1);
        const std::jthread later([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            let_go = true;
        });
        op.reset();
        EXPECT_TRUE(let_go);
        std::vector<TileLink::Outgoing> nothing(2);
        EXPECT_THROW((void)link->all_to_all(nothing, std::vector<TileLink::Incoming>(2), {"next"}),
                     CommunicationError);
        pass.drain();
    });
#endif
}

std::vector<LinkCase> link_cases() {
    std::vector<LinkCase> cases;
    for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
        for (int ranks = 1; ranks <= 4; ++ranks) cases.push_back({transport, ranks});
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(, CudaTileLink, ::testing::ValuesIn(link_cases()), [](const auto& info) {
    return (info.param.transport == CudaTransport::nccl ? "Nccl" : "Copies") +
           std::to_string(info.param.ranks);
});

}  // namespace
}  // namespace vocabpipe
