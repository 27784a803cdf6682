// SPDX-License-Identifier: Apache-2.0
// The NCCL transport: ranks are threads with a device each. Against the stand-in NCCL, which ends
// the process when a rule of NCCL is broken; and against NCCL itself where there are GPUs.
#include "src/schedule/ops.hpp"
#include "tests/runtime/nccl_end.hpp"
#include "vocabpipe/error.hpp"
#ifdef VOCABPIPE_ON_STAND_IN
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/cuda_stand_in/nccl_rules.hpp"
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace vocabpipe {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using testing::DeviceBytes;
using testing::End;
using testing::gpus_for_nccl;
using ::testing::HasSubstr;
using testing::HostBytes;

/// Bytes that only rank `rank` sends as transfer `id`.
HostBytes content(int rank, int id, size_t size) {
    std::minstd_rand random(static_cast<unsigned>(rank * 7919 + id + 1));
    HostBytes bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
    return bytes;
}

/// What all ranks know of one transfer.
struct Planned {
    Do what = Do::send;
    Channel channel = Channel::forward;
    std::vector<int> ranks;
    int root = -1;
    std::vector<int64_t> begin;  ///< of blocks; one where the kind has no blocks
    [[nodiscard]] size_t bytes(size_t member) const {
        return static_cast<size_t>(begin[member + 1] - begin[member]);
    }
};

/// The same on every rank: it depends on the seed only.
std::vector<Planned> random_plan(unsigned seed, int size, int count) {
    std::mt19937 random(seed);
    const auto below = [&](size_t limit) { return random() % limit; };
    std::vector<Planned> plan;
    for (int i = 0; i < count; ++i) {
        constexpr std::array kinds{Do::send,       Do::broadcast, Do::all_gather,
                                   Do::all_to_all, Do::gather,    Do::all_gather_v};
        Planned t{.what = kinds[below(kinds.size())]};
        if (t.what == Do::send && size == 1) continue;
        t.ranks.resize(static_cast<size_t>(size));
        std::iota(t.ranks.begin(), t.ranks.end(), 0);
        std::shuffle(t.ranks.begin(), t.ranks.end(), random);
        t.ranks.resize(t.what == Do::send ? 2 : 1 + below(t.ranks.size()));
        if (t.what != Do::send) std::sort(t.ranks.begin(), t.ranks.end());
        t.channel = t.what == Do::send ? static_cast<Channel>(1 + below(3)) : Channel::collective;
        t.root = t.ranks[below(t.ranks.size())];
        const bool blocks = traits(t.what).blocks != Blocks::none;
        t.begin = {0};
        for (size_t m = 0; m < (blocks ? t.ranks.size() : 1); ++m) {
            t.begin.push_back(t.begin.back() +
                              (below(4) == 0 ? 0 : static_cast<int64_t>(1 + below(300))));
        }
        plan.push_back(t);
    }
    return plan;
}

/// What prepare() is told of these transfers.
std::vector<Route> routes_of_plan(const std::vector<Planned>& plan) {
    std::vector<Route> routes;
    for (const Planned& t : plan) {
        const Lane lane = t.channel == Channel::forward    ? Lane::forward
                          : t.channel == Channel::backward ? Lane::backward
                                                           : Lane::collective;
        if (t.ranks.size() > 1) routes.push_back({t.what, lane, t.ranks, t.root});
    }
    std::sort(routes.begin(), routes.end());
    return routes;
}

/// One rank's part in a transfer: buffers, and what they must hold in the end.
struct Part {
    Part(const Planned& t, int id, int rank) {
        const auto self =
            static_cast<size_t>(std::find(t.ranks.begin(), t.ranks.end(), rank) - t.ranks.begin());
        transfer = {.what = t.what,
                    .channel = t.channel,
                    .ranks = t.ranks,
                    .root = t.root,
                    .block_begin = t.begin};
        const size_t whole = static_cast<size_t>(t.begin.back());
        const auto part_of = [&](int from, size_t member) {
            const HostBytes all = content(from, id, whole);
            return HostBytes(all.begin() + t.begin[member], all.begin() + t.begin[member + 1]);
        };
        const auto append = [&](const HostBytes& bytes) {
            expected.insert(expected.end(), bytes.begin(), bytes.end());
        };
        HostBytes sent;
        switch (t.what) {
            case Do::send:
                if (self == 0) {
                    sent = content(rank, id, whole);
                } else {
                    transfer.what = Do::receive;
                    expected = content(t.ranks[0], id, whole);
                }
                break;
            case Do::broadcast:
                sent = rank == t.root ? content(rank, id, whole) : HostBytes(whole);
                expected = content(t.root, id, whole);
                break;
            case Do::all_gather:
                sent = content(rank, id, whole);
                for (const int from : t.ranks) append(content(from, id, whole));
                break;
            case Do::all_to_all:
                sent = content(rank, id, whole);
                for (const int from : t.ranks) append(part_of(from, self));
                break;
            default:  // gather, all_gather_v
                sent = part_of(rank, self);
                if (t.what == Do::all_gather_v || rank == t.root) {
                    for (size_t m = 0; m < t.ranks.size(); ++m) append(part_of(t.ranks[m], m));
                }
        }
        send = std::make_unique<DeviceBytes>(sent);
        receive = std::make_unique<DeviceBytes>(expected.size());
        transfer.send = send->span();
        transfer.receive = t.what == Do::broadcast ? send->span() : receive->span();
        result = t.what == Do::broadcast ? send.get() : receive.get();
    }
    Transfer transfer;
    HostBytes expected;
    std::unique_ptr<DeviceBytes> send, receive;
    const DeviceBytes* result;
};

std::string too_few(int ranks) {
    return "NCCL takes " + std::to_string(gpus_for_nccl()) + " ranks here, not " +
           std::to_string(ranks);
}

/// Random delays where streams let themselves be delayed; none for seed 0.
void delay_streams([[maybe_unused]] unsigned seed) {
#ifdef VOCABPIPE_ON_STAND_IN
    cuda_stand_in::set_delays(
        {.seed = seed, .longest = std::chrono::microseconds(seed == 0 ? 0 : 200)});
#endif
}

class NcclRanks : public ::testing::TestWithParam<int> {
protected:
    void SetUp() override {
        if (gpus_for_nccl() < GetParam()) GTEST_SKIP() << too_few(GetParam());
    }
    void TearDown() override { delay_streams(0); }
    [[nodiscard]] World world() const {
        return World::threads(GetParam(), {.timeout_seconds = 30});
    }
};

TEST_P(NcclRanks, EveryKindOfTransferBringsEveryByteWithinAnyGroup) {
    for (const unsigned seed : {1u, 2u, 3u}) {
        delay_streams(seed);
        const std::vector<Planned> plan = random_plan(seed, GetParam(), 60);
        world().run([&](Communicator& c) {
            End end(c);
            end.transport->prepare(routes_of_plan(plan));
            // As the executor does and worse: everything is started before anything is tested.
            std::vector<std::pair<int, std::unique_ptr<Part>>> parts;
            for (int id = 0; id < static_cast<int>(plan.size()); ++id) {
                const std::vector<int>& ranks = plan[static_cast<size_t>(id)].ranks;
                if (std::find(ranks.begin(), ranks.end(), c.rank()) == ranks.end()) continue;
                parts.emplace_back(
                    id, std::make_unique<Part>(plan[static_cast<size_t>(id)], id, c.rank()));
            }
            std::vector<Transfer> transfers;
            for (const auto& [id, part] : parts) transfers.push_back(part->transfer);
            end.run(transfers);
            for (const auto& [id, part] : parts) {
                EXPECT_EQ(part->result->read(), part->expected)
                    << "rank " << c.rank() << " transfer " << id << ": "
                    << to_string(part->transfer.what);
            }
        });
    }
}

TEST_P(NcclRanks, ReduceGivesTheRootTheSumOfAllPartials) {
    world().run([&](Communicator& c) {
        End end(c);
        std::vector<int> everyone(static_cast<size_t>(c.size()));
        std::iota(everyone.begin(), everyone.end(), 0);
        const int root = c.size() - 1;
        end.transport->prepare(routes_of_plan({{.what = Do::reduce,
                                                .channel = Channel::collective,
                                                .ranks = everyone,
                                                .root = root}}));
        std::vector<float> mine(100), sum(100);
        for (size_t i = 0; i < mine.size(); ++i) {  // small integers: exact in any order
            mine[i] = static_cast<float>(static_cast<int>(i) * (c.rank() + 1));
        }
        const auto bytes = std::as_bytes(std::span(mine));
        const DeviceBytes partial(HostBytes(bytes.begin(), bytes.end()));
        const DeviceBytes total(c.rank() == root ? bytes.size() : 0);
        end.run({{.what = Do::reduce,
                  .ranks = everyone,
                  .root = root,
                  .type = DType::fp32,
                  .send = partial.span(),
                  .receive = total.span()}});
        if (c.rank() != root) return;
        const HostBytes found = total.read();
        std::memcpy(sum.data(), found.data(), found.size());
        const int factor = c.size() * (c.size() + 1) / 2;
        for (size_t i = 0; i < sum.size(); ++i) {
            EXPECT_EQ(sum[i], static_cast<float>(static_cast<int>(i) * factor));
        }
    });
}

TEST_P(NcclRanks, PreparingTwiceMakesOnlyWhatIsNew) {
    world().run([&](Communicator& c) {
        End end(c);
        for (const unsigned seed : {1u, 1u, 9u}) {
            end.transport->prepare(routes_of_plan(random_plan(seed, c.size(), 20)));
        }
    });
}

TEST_P(NcclRanks, RankThatFailsEndsTheOthersThatWaitForIt) {
    if (GetParam() == 1) return;
    const auto began = std::chrono::steady_clock::now();
    std::atomic<int> waiting{0};
    std::atomic<int> told{0};
    try {
        world().run([&](Communicator& c) {
            End end(c);
            std::vector<int> everyone(static_cast<size_t>(c.size()));
            std::iota(everyone.begin(), everyone.end(), 0);
            end.transport->prepare(routes_of_plan({{.what = Do::broadcast,
                                                    .channel = Channel::collective,
                                                    .ranks = everyone,
                                                    .root = 0}}));
            const DeviceBytes bytes(64);
            if (c.rank() == 0) {
                while (waiting < c.size() - 1) std::this_thread::yield();
                throw DeviceError("rank 0 breaks on purpose");
            }
            try {
                end.run({{.what = Do::broadcast,
                          .ranks = everyone,
                          .root = 0,
                          .send = bytes.span(),
                          .receive = bytes.span()}},
                        [&] { ++waiting; });
            } catch (const CommunicationError& error) {
                EXPECT_THAT(error.what(), HasSubstr("rank 0 breaks on purpose"));
                ++told;
                throw;
            }
        });
        FAIL() << "the world did not fail";
    } catch (const DeviceError&) {
    }
    EXPECT_EQ(told, GetParam() - 1);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST_P(NcclRanks, RankThatFailsWhileTheOthersConnectEndsThem) {
    if (GetParam() == 1) return;
    EXPECT_THROW(world().run([&](Communicator& c) {
        if (c.rank() == 0) {
            (void)c.all_gather({});  // of agree(), of End
            ncclUniqueId id;
            ncclGetUniqueId(&id);
            (void)c.all_gather(std::as_bytes(std::span(&id, 1)));
            throw DeviceError("gone before it joined");
        }
        const End end(c);
    }),
                 DeviceError);
}

INSTANTIATE_TEST_SUITE_P(, NcclRanks, ::testing::Values(1, 2, 3, 4));

class NcclPair : public ::testing::Test {
protected:
    void SetUp() override {
#ifdef VOCABPIPE_ON_STAND_IN
        cuda_stand_in::set_device_count(2);
#else
        if (gpus_for_nccl() < 2) GTEST_SKIP() << too_few(2);
#endif
    }
    static inline const std::vector<int> kPair{0, 1};
    static std::vector<Route> one_message() {
        return routes_of_plan({{.what = Do::send, .channel = Channel::forward, .ranks = {0, 1}}});
    }
    /// The message from 0 to 1 as this rank sees it.
    static Transfer message(int rank, std::span<std::byte> bytes) {
        Transfer t{.what = rank == 0 ? Do::send : Do::receive,
                   .channel = Channel::forward,
                   .ranks = kPair};
        if (rank == 0) {
            t.send = bytes;
        } else {
            t.receive = bytes;
        }
        return t;
    }
};

#ifdef VOCABPIPE_ON_STAND_IN  // NCCL itself may buffer what is small and end before it is received
TEST_F(NcclPair, TransferIsDoneForTheHostOnceItIsEnqueued) {
    std::atomic<bool> enqueued{false};
    World::threads(2).run([&](Communicator& c) {
        End end(c);
        end.transport->prepare(one_message());
        DeviceBytes bytes(c.rank() == 0 ? content(0, 1, 50) : HostBytes(50));
        if (c.rank() == 1) {
            while (!enqueued) std::this_thread::yield();
        }
        end.run({message(c.rank(), bytes.span())}, [&] {
            if (c.rank() == 1) return;
            EXPECT_EQ(cudaStreamQuery(end.streams.forward), cudaErrorNotReady);
            enqueued = true;
        });
        EXPECT_EQ(bytes.read(), content(0, 1, 50));
    });
}

#endif

TEST_F(NcclPair, TransferWaitsForWhatItsStreamWaitsFor) {
    World::threads(2).run([&](Communicator& c) {
        End end(c);
        end.transport->prepare(one_message());
        DeviceBytes bytes(HostBytes(50));
        const HostBytes sent = content(0, 2, 50);
        const cuda::Stream compute = cuda::make_stream(0);
        const cuda::Event made = cuda::make_event(cuda::Timing::no);
        if (c.rank() == 0) {
            cudaLaunchHostFunc(
                compute.get(), [](void*) { std::this_thread::sleep_for(milliseconds(20)); },
                nullptr);
            cudaMemcpyAsync(bytes.span().data(), sent.data(), 50, cudaMemcpyHostToDevice,
                            compute.get());
            cudaEventRecord(made.get(), compute.get());
            cudaStreamWaitEvent(end.streams.forward, made.get(), 0);
        }
        end.run({message(c.rank(), bytes.span())});
        cudaStreamSynchronize(compute.get());
        EXPECT_EQ(bytes.read(), sent);
    });
}

TEST_F(NcclPair, AbortTellsTheOtherRankWhy) {
    try {
        World::threads(2).run([&](Communicator& c) {
            End end(c);
            end.transport->prepare(one_message());
            const DeviceBytes bytes(50);
            if (c.rank() == 0) {
                end.transport->abort("rank 0 has had enough");
                EXPECT_THROW((void)end.transport->start(message(0, bytes.span())),
                             CommunicationError);
                return;
            }
            end.run({message(1, bytes.span())});
        });
        FAIL() << "rank 1 did not notice";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 0 has had enough"));
    }
}

/// The peer died. On this GPU a collective runs, which no one will meet, and behind a pass that
/// waits for it a message is enqueued.
TEST_F(NcclPair, CancelEndsOperationsThatWaitBehindThoseOfAnotherCommunicator) {
    const std::vector<Planned> plan{
        {.what = Do::broadcast, .channel = Channel::collective, .ranks = {0, 1}, .root = 1},
        {.what = Do::send, .channel = Channel::backward, .ranks = {0, 1}}};
    const auto begin = std::chrono::steady_clock::now();
    World::threads(2).run([&](Communicator& c) {
        End end(c);
        end.transport->prepare(routes_of_plan(plan));
        const DeviceBytes bytes(50);
        if (c.rank() == 0) {
            const cuda::Event arrived = cuda::make_event(cuda::Timing::no);
            end.enqueue(end.transport->start({.what = Do::broadcast,
                                              .channel = Channel::collective,
                                              .ranks = kPair,
                                              .root = 1,
                                              .send = bytes.span(),
                                              .receive = bytes.span()}));
            cudaEventRecord(arrived.get(), end.streams.collective);
            cudaStreamWaitEvent(end.streams.backward, arrived.get(), 0);
            end.enqueue(end.transport->start({.what = Do::send,
                                              .channel = Channel::backward,
                                              .ranks = kPair,
                                              .send = bytes.span()}));
            end.transport->cancel();
            for (const cuda::Stream& stream : end.owned) cudaStreamSynchronize(stream.get());
        }
        c.barrier();
        end.transport->cancel();
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

#ifdef VOCABPIPE_ON_STAND_IN  // rules broken on purpose, and deadlines that are short for a GPU

TEST_F(NcclPair, FailureOfNcclIsACommunicationErrorThatNamesTheCall) {
    const cuda_stand_in::nccl::ExpectBrokenRules rules;
    std::atomic<int> errors{0};
    try {
        World::threads(2, {.timeout_seconds = 20}).run([&](Communicator& c) {
            End end(c);
            end.transport->prepare(one_message());
            const DeviceBytes bytes(c.rank() == 0 ? 50 : 51);
            try {
                end.run({message(c.rank(), bytes.span())});
            } catch (const CommunicationError& error) {
                ++errors;
                EXPECT_THAT(error.what(), HasSubstr("internal error"));
                throw;
            }
        });
        FAIL();
    } catch (const CommunicationError&) {
    }
    EXPECT_GE(errors, 1);
    EXPECT_THAT(rules.texts(), ::testing::ElementsAre(HasSubstr("of 51 x uint8 from rank 0")));
}

TEST_F(NcclPair, RanksThatShareAGpuAreRefused) {
    cuda_stand_in::set_device_count(1);
    try {
        World::threads(2).run([&](Communicator& c) {
            cudaSetDevice(0);
            (void)nccl::make_transport(c, {});
        });
        FAIL();
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("Duplicate GPU"), HasSubstr("--transport threads")));
    }
}

TEST_F(NcclPair, PeerThatDoesNotAnswerIsAnErrorAfterTheDeadline) {
    std::atomic<bool> over{false};
    try {
        World::threads(2, {.timeout_seconds = 0.2}).run([&](Communicator& c) {
            End end(c);
            if (c.rank() == 0) {
                while (!over) std::this_thread::yield();
                return;
            }
            const struct Tell {
                std::atomic<bool>& flag;
                ~Tell() { flag = true; }
            } tell{over};
            end.transport->prepare(one_message());
        });
        FAIL();
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr("did not answer")));
    }
}

#endif

}  // namespace
}  // namespace vocabpipe
