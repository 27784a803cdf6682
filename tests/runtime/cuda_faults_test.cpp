// SPDX-License-Identifier: Apache-2.0
// Faults of GPUs, of what moves their messages and of ranks: a typed error that says where, on
// every rank, in bounded time.
#include "src/runtime/device/cuda/handles.hpp"
#include "src/runtime/transport/device_copies/transport.hpp"
#include "src/runtime/transport/transport.hpp"
#include "tests/runtime/cuda_interruption.hpp"
#include "tests/runtime/cuda_pipeline.hpp"
#ifdef VOCABPIPE_ON_STAND_IN
#include "tests/support/cuda_stand_in/nccl_rules.hpp"
#endif
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

namespace vocabpipe::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

/// What every rank of a run ended with.
struct Ends {
    std::map<int, std::string> of_rank;
    std::map<int, bool> by_communication;
    double seconds = 0;
};

/// Runs a pipeline in which forwards of rank 1 are interrupted.
Ends run_interrupted(CudaPipeline pipeline, const std::function<void(const Microbatch&)>& interrupt,
                     const std::function<void()>& rank_0_ended = {}) {
    Ends ends;
    std::mutex mutex;
    std::vector<std::unique_ptr<InterruptedStage>> stages;
    pipeline.change_modules = [&](int rank, RankModules& modules) {
        if (rank != 1) return;
        for (StageModule*& stage : modules.stages) {
            if (stage == nullptr) continue;
            stages.push_back(std::make_unique<InterruptedStage>(*stage, interrupt));
            stage = stages.back().get();
        }
    };
    pipeline.failed = [&](int rank, const std::exception& error) {
        {
            const std::lock_guard lock(mutex);
            ends.of_rank[rank] = error.what();
            ends.by_communication[rank] =
                dynamic_cast<const CommunicationError*>(&error) != nullptr;
        }
        if (rank == 0 && rank_0_ended) rank_0_ended();
    };
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_ANY_THROW(pipeline.run());
    ends.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return ends;
}

/// A run in whose second step rank 1 stalls, until rank 0 has ended or for 20 s.
struct Stall {
    Ends ends;
    double seconds = 0;
};
Stall run_stalled(CudaPipeline pipeline) {
    Stall stall;
    std::atomic<bool> over{false};
    int forwards = 0;
    pipeline.later_timeout_seconds = 1;
    const auto stalls = [&](const Microbatch& m) {
        if (m.index != 1 || ++forwards != 2) return;
        const auto begin = std::chrono::steady_clock::now();
        const auto seconds = [&] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        };
        while (!over && seconds() < 20) std::this_thread::sleep_for(milliseconds(5));
        stall.seconds = seconds();
    };
    stall.ends = run_interrupted(std::move(pipeline), stalls, [&] { over = true; });
    return stall;
}

void expect_named_in_time(const Stall& stall) {
    const Ends& ends = stall.ends;
    ASSERT_EQ(ends.of_rank.size(), 2U);
    EXPECT_TRUE(ends.by_communication.at(0));
    EXPECT_THAT(
        ends.of_rank.at(0),
        AllOf(StartsWith("rank 0: step 2: "), HasSubstr("waits "), HasSubstr(" of microbatch "),
              AnyOf(HasSubstr("from rank 1"), HasSubstr("(ranks 1)")),
              HasSubstr("no progress within --distributed-timeout-seconds")));
    EXPECT_LT(stall.seconds, 10) << "with a deadline of one second";
}

class CudaFaults : public ::testing::TestWithParam<CudaTransport> {
protected:
    void SetUp() override {
        if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
        if (GetParam() == CudaTransport::nccl && gpus_for_nccl() < 3)
            GTEST_SKIP() << "needs 3 GPUs";
    }
};

TEST_P(CudaFaults, RankThatThrowsWithinAStepEndsTheOthersWhichSayWhatTheyWaitedFor) {
    int forwards = 0;
    const Ends ends = run_interrupted({.ranks = 3, .microbatches = 6, .transport = GetParam()},
                                      [&](const Microbatch& m) {
                                          if (m.index == 3 && ++forwards == 2)
                                              throw std::runtime_error("the layer gave up");
                                      });
    ASSERT_EQ(ends.of_rank.size(), 3U);
    EXPECT_EQ(ends.of_rank.at(1), "the layer gave up");
    for (const int rank : {0, 2}) {
        EXPECT_TRUE(ends.by_communication.at(rank));
        EXPECT_THAT(ends.of_rank.at(rank),
                    AllOf(StartsWith("rank " + std::to_string(rank) + ": step 2: "),
                          HasSubstr(" for "), HasSubstr("rank 1 failed: the layer gave up")));
    }
    EXPECT_LT(ends.seconds, 20);
}

TEST_P(CudaFaults, RankThatStallsIsNamedByThoseThatWaitedInVain) {
    const Stall stall = run_stalled({.ranks = 2, .microbatches = 4, .transport = GetParam()});
    expect_named_in_time(stall);
}

#ifdef VOCABPIPE_ON_STAND_IN
/// Rank 0 has more passes to enqueue than its streams hold, most of them behind a message that does
/// not come. A host that enqueues them all blocks in the driver, where no deadline expires.
TEST_P(CudaFaults, RankThatStallsIsNamedInTimeHoweverMuchTheOthersHaveToEnqueue) {
    cuda_stand_in::set_stream_capacity(400);
    cuda_stand_in::reset_counters();
    const Stall stall = run_stalled({.ranks = 2, .microbatches = 24, .transport = GetParam()});
    cuda_stand_in::set_stream_capacity(cuda_stand_in::kStreamCapacity);
    expect_named_in_time(stall);
    EXPECT_EQ(cuda_stand_in::counters().blocked_launches, 0U);
}
#endif

INSTANTIATE_TEST_SUITE_P(, CudaFaults,
                         ::testing::Values(CudaTransport::copies, CudaTransport::nccl),
                         [](const auto& info) {
                             return info.param == CudaTransport::nccl ? "Nccl" : "Copies";
                         });

/// Ends of the copying transport on a GPU each, or on the same.
struct CopyingEnd {
    CopyingEnd(Communicator& communicator, int gpus) {
        cuda::check(cudaSetDevice(communicator.rank() % gpus), "cudaSetDevice");
        for (cuda::Stream& one : owned) one = cuda::make_stream(0);
        transport = device_copies::make_transport(communicator,
                                                  {owned[0].get(), owned[1].get(), owned[2].get()});
        void* data = nullptr;
        cuda::check(cudaMalloc(&data, 64), "cudaMalloc");
        memory = DeviceMemory(static_cast<std::byte*>(data), 64,
                              [](std::byte* given) { (void)cudaFree(given); });
    }
    ~CopyingEnd() {
        for (const cuda::Stream& one : owned) (void)cudaStreamSynchronize(one.get());
    }
    CopyingEnd(const CopyingEnd&) = delete;
    CopyingEnd& operator=(const CopyingEnd&) = delete;

    [[nodiscard]] Ticket send_to_rank_0() {
        return transport->start({.what = Do::send,
                                 .channel = Channel::forward,
                                 .ranks = pair,
                                 .send = memory.bytes(),
                                 .receive = {},
                                 .block_begin = {}});
    }
    [[nodiscard]] Ticket receive_from_rank_1() {
        return transport->start({.what = Do::receive,
                                 .channel = Channel::forward,
                                 .ranks = pair,
                                 .send = {},
                                 .receive = memory.bytes(),
                                 .block_begin = {}});
    }
    static constexpr std::array<int, 2> pair{1, 0};
    DeviceMemory memory;
    std::array<cuda::Stream, 3> owned;
    std::unique_ptr<Transport> transport;
};

class CudaCopies : public ::testing::TestWithParam<int> {
protected:
    void SetUp() override {
        if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
        if (gpus_for_nccl() < GetParam()) GTEST_SKIP() << "needs " << GetParam() << " GPUs";
    }
};

TEST_P(CudaCopies, RunAPipeline) {
    EXPECT_NO_THROW((CudaPipeline{.ranks = 3, .gpus = GetParam()}).run());
}

TEST_P(CudaCopies, OfARankThatFailedAreNotMadeAfterwards) {
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        CopyingEnd end(communicator, GetParam());
        if (communicator.rank() == 1) {
            (void)end.send_to_rank_0();
            end.transport->cancel();
            end.memory = {};
        }
        communicator.barrier();
        if (communicator.rank() == 0) {
            const Ticket ticket = end.receive_from_rank_1();
            for (int i = 0; i < 100; ++i) EXPECT_FALSE(end.transport->test(ticket));
            end.transport->cancel();
        }
        communicator.barrier();
    });
}

TEST_P(CudaCopies, ThatAreUnderWayHoldUpARankThatFailedUntilTheyAreMade) {
    std::atomic<bool> let_go{false};
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        CopyingEnd end(communicator, GetParam());
        if (communicator.rank() == 1) (void)end.send_to_rank_0();
        communicator.barrier();
        if (communicator.rank() == 0) {  // enqueued, behind something that takes its time
            hold_up(end.owned[0].get(), let_go);
            const Ticket ticket = end.receive_from_rank_1();
            while (!end.transport->test(ticket)) std::this_thread::yield();
        }
        communicator.barrier();
        if (communicator.rank() == 0) {
            std::this_thread::sleep_for(milliseconds(20));
            let_go = true;
        } else {
            end.transport->cancel();
            EXPECT_TRUE(let_go) << "the memory may go now";
            end.memory = {};
        }
        communicator.barrier();
    });
}

#ifdef VOCABPIPE_ON_STAND_IN
/// Without that record its sender cannot know of the copy, so the receiver waits for it itself.
TEST_P(CudaCopies, WhoseEndCannotBeRecordedAreMadeBeforeTheReceiverFails) {
    std::atomic<bool> let_go{false};
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        CopyingEnd end(communicator, GetParam());
        if (communicator.rank() == 1) (void)end.send_to_rank_0();
        communicator.barrier();
        if (communicator.rank() == 0) {
            hold_up(end.owned[0].get(), let_go);
            const std::jthread later([&] {
                std::this_thread::sleep_for(milliseconds(20));
                let_go = true;
            });
            const Ticket ticket = end.receive_from_rank_1();
            cuda_stand_in::fail_next_call(cudaErrorMemoryAllocation, "cudaEventRecord");
            EXPECT_THROW((void)end.transport->test(ticket), DeviceError);
            EXPECT_TRUE(let_go) << "the sender may withdraw its message now";
        }
        communicator.barrier();
        end.transport->cancel();
        communicator.barrier();
    });
}
#endif

INSTANTIATE_TEST_SUITE_P(, CudaCopies, ::testing::Values(1, 2), [](const auto& info) {
    return info.param == 1 ? "OnOneGpu" : "BetweenTwoGpus";
});

#ifdef VOCABPIPE_ON_STAND_IN

/// NCCL's thread has a launch at hand for a while, and the next one waits for it. So the host looks
/// again before it enqueues a pass, not only after it.
TEST(CudaTransfers, AreLaunchedBeforeTheNextPassIsEnqueued) {
    if (gpus_for_nccl() < 3) GTEST_SKIP() << "needs 3 GPUs";
    int forwards = 0;
    int late = 0;
    std::unique_ptr<InterruptedStage> stage;
    CudaPipeline pipeline{.ranks = 3, .microbatches = 12, .transport = CudaTransport::nccl};
    pipeline.change_modules = [&](int rank, RankModules& modules) {
        if (rank != 1) return;
        for (StageModule*& one : modules.stages) {
            if (one == nullptr) continue;
            stage = std::make_unique<InterruptedStage>(*one, [&](const Microbatch&) {
                ++forwards;
                late += cuda_stand_in::nccl::launches_in_progress(1);
            });
            one = stage.get();
        }
    };
    pipeline.run();
    EXPECT_EQ(forwards, 24);
    EXPECT_LE(late, 4) << "those that found no core for 100 us";
}

/// In a process of its own: what CUDA reads is decided once.
TEST(CudaDeviceDeathTest, IsPreparedForNcclWhereItJoinsRanksAndLeavesTheUsersWord) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto ends_with = [](bool nccl, const char* user, const std::string& loading,
                              const std::string& connections) {
        for (const char* name : {"CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS"}) {
            unsetenv(name);
            if (user != nullptr) setenv(name, user, 1);
        }
        prepare_cuda(nccl);
        const auto is = [](const char* name, const std::string& want) {
            const char* const value = std::getenv(name);
            return (value == nullptr ? "" : value) == want;
        };
        std::exit(is("CUDA_MODULE_LOADING", loading) &&
                          is("CUDA_DEVICE_MAX_CONNECTIONS", connections)
                      ? 0
                      : 1);
    };
    const auto well = ::testing::ExitedWithCode(0);
    EXPECT_EXIT(ends_with(true, nullptr, "EAGER", "32"), well, "");
    EXPECT_EXIT(ends_with(false, nullptr, "", "32"), well, "");
    EXPECT_EXIT(ends_with(true, "1", "1", "1"), well, "");
}

TEST(CudaDevice, WithoutAGpuSaysHowToLookForOne) {
    cuda_stand_in::set_device_count(0);
    EXPECT_EQ(cuda_device_count(), 0);
    EXPECT_THAT([] { (void)make_cuda_device({}); },
                ThrowsMessage<DeviceError>("--device cuda: no GPU was found; check nvidia-smi and "
                                           "CUDA_VISIBLE_DEVICES, or use --device host"));
    cuda_stand_in::set_device_count(1);
    EXPECT_NO_THROW((void)make_cuda_device({})) << "nothing of the error is left";
}

TEST(CudaDevice, OfANumberThatThereIsNotNamesItAndHowManyThereAre) {
    cuda_stand_in::set_device_count(2);
    EXPECT_THAT(
        [] { (void)make_cuda_device({.ordinal = 2}); },
        ThrowsMessage<DeviceError>(HasSubstr("GPU 2 is needed, but only 2 can be seen; start "
                                             "at most one rank per GPU, or let ranks share "
                                             "one with --transport threads")));
}

TEST(CudaDevice, WithoutMemorySaysForWhatHowMuchAndWhatIsLeft) {
    cuda_stand_in::set_device_count(1);
    cuda_stand_in::set_memory_bytes(size_t{256} << 20);
    {
        const std::unique_ptr<Device> device = make_cuda_device({});
        const uint64_t free = device->memory()->free;
        EXPECT_LE(free, size_t{256 - 34 - 48} << 20) << "workspaces and a context";
        const std::string all = std::to_string(free >> 20) + ".0 MiB";
        EXPECT_THAT(
            [&] { (void)device->allocate(free + 1, "rank 3: the arena"); },
            ThrowsMessage<OutOfMemoryError>(AllOf(
                StartsWith("rank 3: the arena: " + all), HasSubstr(" cannot be allocated on "),
                HasSubstr("(cuda:0)"), HasSubstr(all + " are free; use a smaller model"))));
        EXPECT_NO_THROW((void)device->allocate(free / 2, "less"));
        EXPECT_EQ(device->memory()->free, free);
    }
    EXPECT_EQ(cuda_stand_in::memory_in_use(0), 0U);
    cuda_stand_in::set_memory_bytes(size_t{4} << 30);
}

TEST(CudaDevice, FailingKernelIsADeviceErrorThatNamesRankStepAndAction) {
    for (const auto* const function : {"cudaEventQuery", "cudaLaunchKernelEx"}) {
        CudaPipeline pipeline{.ranks = 1, .steps = 3};
        pipeline.before_step = [&](int, int step) {
            if (step == 2) cuda_stand_in::fail_next_call(cudaErrorLaunchFailure, function);
        };
        EXPECT_THAT([&] { pipeline.run(); },
                    ThrowsMessage<DeviceError>(
                        AllOf(StartsWith("rank 0: step 2: "),
                              HasSubstr(": cudaErrorLaunchFailure: unspecified launch failure"))))
            << function;
        cuda_stand_in::fail_next_call(cudaSuccess);
    }
}

#endif

}  // namespace
}  // namespace vocabpipe::testing
