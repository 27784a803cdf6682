// SPDX-License-Identifier: Apache-2.0
// Ranks that end with an error, on the stand-in toolkit: none waits for another that has failed,
// and none frees memory that a stream may still use.
#include "tests/runtime/cuda_interruption.hpp"
#include "tests/runtime/cuda_pipeline.hpp"
#include "tests/support/cuda_stand_in/nccl_rules.hpp"
#include "vocabpipe/cuda/stream.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <span>
#include <thread>
#include <vector>

namespace vocabpipe::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// What ranks use to agree, with something to do whenever one of them looks after the others.
class WatchedControl final : public Transport {
public:
    WatchedControl(Transport& inner, std::function<void()> look)
        : inner_(inner), look_(std::move(look)) {}
    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int size() const override { return inner_.size(); }
    [[nodiscard]] Ticket start(const Transfer& transfer) override { return inner_.start(transfer); }
    [[nodiscard]] bool test(Ticket ticket) override { return inner_.test(ticket); }
    void check_health() override {
        look_();
        inner_.check_health();
    }
    void cancel() noexcept override { inner_.cancel(); }
    void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

private:
    Transport& inner_;
    std::function<void()> look_;
};

class CudaEnds : public ::testing::Test {
protected:
    void SetUp() override {
        cuda_stand_in::set_device_count(3);
        cuda_stand_in::reset_counters();
    }
    void TearDown() override {
        cuda_stand_in::fail_next_call(cudaSuccess);
        for (int device = 0; device < 3; ++device) {
            EXPECT_EQ(cuda_stand_in::memory_in_use(device), 0U);
        }
        EXPECT_EQ(cuda_stand_in::counters().busy_frees, 0U);
    }
};

/// Rank 0 has its first message on a stream, where it waits for the other end. Rank 1 has issued
/// that end, so that there is a connection, and fails before it is launched.
TEST_F(CudaEnds, RankThatFailsWhileConnectionsAreMadeLeavesNoStreamWaiting) {
    std::atomic<bool> enqueued{false};
    std::array<Device*, 2> devices{};
    CudaPipeline pipeline{.ranks = 2, .transport = CudaTransport::nccl};
    pipeline.make_device = [&](int rank, const CudaDeviceOptions& options) {
        std::unique_ptr<Device> made = make_cuda_device(options);
        devices.at(static_cast<size_t>(rank)) = made.get();
        return made;
    };
    pipeline.change_control = [&](int rank, Transport& inner) {
        return std::make_unique<WatchedControl>(inner, [&, rank] {
            if (rank == 0) {
                if (devices[0] != nullptr && !devices[0]->idle()) enqueued = true;
            } else if (cuda_stand_in::nccl::launches_in_progress(1) > 0) {
                const auto limit = std::chrono::steady_clock::now() + seconds(20);
                while (!enqueued && std::chrono::steady_clock::now() < limit) {
                    std::this_thread::yield();
                }
                throw DeviceError("the GPU was lost");
            }
        });
    };
    EXPECT_THAT([&] { pipeline.run(); }, ThrowsMessage<DeviceError>("the GPU was lost"));
    EXPECT_TRUE(enqueued);
}

class CudaEndsOfSteps : public CudaEnds, public ::testing::WithParamInterface<CudaTransport> {};

TEST_P(CudaEndsOfSteps, FreeNothingBeforeTheStreamsHaveRun) {
    std::atomic<bool> let_go{false};
    std::jthread later;
    std::unique_ptr<InterruptedStage> stage;
    cudaStream_t stream = nullptr;
    CudaPipeline pipeline{.ranks = 2, .transport = GetParam()};
    pipeline.make_device = [&](int rank, const CudaDeviceOptions& options) {
        std::unique_ptr<Device> made = make_cuda_device(options);
        if (rank == 1) {
            Context context(made->context(1, {}));
            stream = cuda_stream(context);
        }
        return made;
    };
    pipeline.change_modules = [&](int rank, RankModules& modules) {
        if (rank != 1) return;
        for (StageModule*& one : modules.stages) {
            if (one == nullptr) continue;
            stage = std::make_unique<InterruptedStage>(*one, [&](const Microbatch& microbatch) {
                if (microbatch.index != 1) return;
                hold_up(stream, let_go);
                later = std::jthread([&] {
                    std::this_thread::sleep_for(milliseconds(20));
                    let_go = true;
                });
                throw std::runtime_error("the layer gave up");
            });
            one = stage.get();
        }
    };
    EXPECT_THAT([&] { pipeline.run(); }, ThrowsMessage<std::runtime_error>("the layer gave up"));
}

INSTANTIATE_TEST_SUITE_P(, CudaEndsOfSteps,
                         ::testing::Values(CudaTransport::copies, CudaTransport::nccl),
                         [](const auto& info) {
                             return info.param == CudaTransport::nccl ? "Nccl" : "Copies";
                         });

/// Whatever call fails, whenever it is: ranks end, with an error that has a name, and give their
/// memory back. Half of the calls are those of a rank's start. With --gtest_shuffle and
/// --gtest_random_seed other calls fail.
TEST(CudaDevice, AnyCallMayFailAtAnyTimeAndAllRanksEnd) {
    int failures = 0;
    cuda_stand_in::set_device_count(3);
    for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
        for (unsigned seed = 0; seed < 12; ++seed) {
            const int shuffled = ::testing::UnitTest::GetInstance()->random_seed();
            std::minstd_rand random(12 * static_cast<unsigned>(shuffled) + seed + 1);
            random.discard(10);
            const int failing = static_cast<int>(random() % 3);
            const uint64_t call = 1 + random() % (seed % 4 < 2 ? 300 : 4000);
            SCOPED_TRACE(::testing::Message() << "call " << call << " of rank " << failing);
            CudaPipeline pipeline{.ranks = 3, .transport = transport};
            if (seed % 3 == 2) {
                pipeline.sequences = 11;
                pipeline.pieces = 2;
            }
            pipeline.make_device = [&](int rank, const CudaDeviceOptions& options) {
                if (rank == failing) {
                    cuda_stand_in::fail_call_of_this_thread(
                        seed % 2 == 0 ? cudaErrorLaunchFailure : cudaErrorMemoryAllocation, call);
                }
                return make_cuda_device(options);
            };
            const auto begin = std::chrono::steady_clock::now();
            try {
                pipeline.run();
            } catch (const Error& error) {
                ++failures;
                EXPECT_THAT(error.exit_code(), AnyOf(ExitCode::device, ExitCode::communication,
                                                     ExitCode::out_of_memory))
                    << error.what();
                EXPECT_THAT(error.what(), HasSubstr(": ")) << error.what();
            }
            EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
        }
    }
    EXPECT_GT(failures, 12) << "most of the 24 runs are hit";
}

TEST_F(CudaEnds, UploadWhoseWaitFailsHasReadItsMemory) {
    const std::unique_ptr<Device> device = make_cuda_device({});
    const DeviceMemory memory = device->allocate(64, "memory");
    std::vector<std::byte> bytes(64, std::byte{1});
    Context context(device->context(1, {}));
    std::atomic<bool> let_go{false};
    hold_up(cuda_stream(context), let_go);
    const std::jthread later([&] {
        std::this_thread::sleep_for(milliseconds(20));
        let_go = true;
    });
    cuda_stand_in::fail_next_call(cudaErrorLaunchFailure, "cudaStreamSynchronize");
    EXPECT_THROW(device->upload(bytes, memory.data()), DeviceError);
    EXPECT_TRUE(let_go) << "the bytes may go now";
    std::ranges::fill(bytes, std::byte{2});
    device->download(memory.data(), bytes);
    EXPECT_THAT(bytes, Each(std::byte{1}));
}

/// The zeros are written by a stream for which no other waits.
TEST_F(CudaEnds, MemoryIsZeroBeforeAnythingIsWrittenToIt) {
    const std::unique_ptr<Device> device = make_cuda_device({});
    const DeviceMemory memory = device->allocate(64, "memory");
    std::vector<std::byte> bytes(64, std::byte{1});
    device->upload(bytes, memory.data());
    (void)device->allocate(64, "more");
    device->download(memory.data(), bytes);
    EXPECT_THAT(bytes, Each(std::byte{1}));
}

}  // namespace
}  // namespace vocabpipe::testing
