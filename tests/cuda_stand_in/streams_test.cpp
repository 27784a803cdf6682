// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "tests/cuda_stand_in/device_array.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/cuda_stand_in/sanitizers.hpp"
#include "tests/support/cuda_stand_in/stream_queue.hpp"

namespace {

using namespace std::chrono_literals;
using cuda_stand_in::enqueue;
using stand_in_test::DeviceArray;
using stand_in_test::Event;
using stand_in_test::Stream;

/// Holds a stream until opened.
class Gate {
public:
    void hold(cudaStream_t stream) {
        enqueue(stream, [this] {
            std::unique_lock lock(mutex_);
            opened_.wait(lock, [this] { return open_; });
        });
    }
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        opened_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = false;
};

class StandInStreams : public testing::Test {
protected:
    ~StandInStreams() override {
        cuda_stand_in::set_delays({});
        cuda_stand_in::set_device_count(1);
        cudaSetDevice(0);
        cudaGetLastError();
    }
};

TEST_F(StandInStreams, WorkRunsLaterAndInOrder) {
    const Stream stream;
    Gate gate;
    std::vector<int> order;
    gate.hold(stream);
    for (int i = 0; i < 100; ++i) {
        enqueue(stream, [&order, i] { order.push_back(i); });
    }
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    gate.open();
    stream.synchronize();
    EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
    ASSERT_EQ(order.size(), 100U);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(StandInStreams, LaunchingIntoAFullStreamBlocksUntilSomethingHasRun) {
    const Stream stream;
    Gate gate;
    std::atomic<int> launched = 0;
    cuda_stand_in::set_stream_capacity(4);
    cuda_stand_in::reset_counters();
    gate.hold(stream);
    std::jthread host([&] {
        for (int i = 0; i < 6; ++i, ++launched) enqueue(stream, [] {});
    });
    while (cuda_stand_in::counters().blocked_launches == 0) std::this_thread::yield();
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(launched, 3) << "beside the gate";
    EXPECT_TRUE(cuda_stand_in::would_block(stream));
    gate.open();
    host.join();
    stream.synchronize();
    EXPECT_EQ(launched, 6);
    EXPECT_FALSE(cuda_stand_in::would_block(stream));
    cuda_stand_in::set_stream_capacity(cuda_stand_in::kStreamCapacity);
}

TEST_F(StandInStreams, WaitBehindAnotherThatSharesTheirConnectionOnly) {
    cuda_stand_in::set_device_count(8);
    for (const bool share : {true, false}) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", share ? "2" : "32", 1);
        cudaSetDevice(share ? 6 : 7);  // of no other test
        const Stream held;
        const Stream beside;
        const Stream third;
        Gate gate;
        std::atomic<bool> beside_ran = false;
        std::atomic<bool> third_ran = false;
        cuda_stand_in::reset_counters();
        gate.hold(held);
        enqueue(held, [] {});  // cannot be issued before the gate opens
        enqueue(beside, [&] { beside_ran = true; });
        enqueue(third, [&] { third_ran = true; });
        beside.synchronize();
        EXPECT_TRUE(beside_ran);
        if (share) {
            std::this_thread::sleep_for(5ms);
        } else {
            third.synchronize();
        }
        EXPECT_EQ(third_ran, !share);
        EXPECT_EQ(cuda_stand_in::counters().false_dependencies, share ? 1U : 0U);
        gate.open();
        third.synchronize();
        EXPECT_TRUE(third_ran);
    }
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

TEST_F(StandInStreams, AWaitForAnEventHoldsUpItsConnectionUntilTheEventHasHappened) {
    cuda_stand_in::set_device_count(8);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 1);
    cudaSetDevice(5);
    const Stream waits;
    const Stream held;
    const Stream behind;  // shares the connection of the first
    const Event event;
    Gate gate;
    std::atomic<bool> ran = false;
    gate.hold(held);
    cudaEventRecord(event, held);
    cudaStreamWaitEvent(waits, event, 0);
    enqueue(behind, [&] { ran = true; });
    std::this_thread::sleep_for(5ms);
    EXPECT_FALSE(ran);
    gate.open();
    behind.synchronize();
    EXPECT_TRUE(ran);
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
}

TEST_F(StandInStreams, OneStreamDoesNotWaitForAnother) {
    const Stream held;
    const Stream free;
    Gate gate;
    gate.hold(held);
    std::atomic<bool> ran = false;
    enqueue(free, [&] { ran = true; });
    free.synchronize();
    EXPECT_TRUE(ran);
    EXPECT_EQ(cudaStreamQuery(held), cudaErrorNotReady);
    gate.open();
}

TEST_F(StandInStreams, AnEventOrdersTwoStreams) {
    const Stream producer;
    const Stream consumer;
    const Event ready(cudaEventDisableTiming);
    Gate gate;
    gate.hold(producer);
    int value = 0;
    int seen = -1;
    enqueue(producer, [&] { value = 42; });
    ASSERT_EQ(cudaEventRecord(ready, producer), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(consumer, ready), cudaSuccess);
    enqueue(consumer, [&] { seen = value; });
    EXPECT_EQ(cudaEventQuery(ready), cudaErrorNotReady);
    gate.open();
    consumer.synchronize();
    EXPECT_EQ(seen, 42);
    EXPECT_EQ(cudaEventQuery(ready), cudaSuccess);
}

TEST_F(StandInStreams, AWaitMeansTheRecordBeforeIt) {
    const Stream first;
    const Stream second;
    const Stream waiting;
    const Event event;
    ASSERT_EQ(cudaStreamWaitEvent(waiting, event), cudaSuccess);  // never recorded: no wait
    ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(waiting, event), cudaSuccess);
    Gate gate;
    gate.hold(second);
    ASSERT_EQ(cudaEventRecord(event, second), cudaSuccess);
    waiting.synchronize();
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    gate.open();
    ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

/// A consumer that copies what a producer writes; with the event it always sees the new value.
/// Returns how often it saw the old one.
int stale_reads(bool with_event) {
    const Stream producer;
    const Stream consumer;
    const Event written;
    const Event copied;
    const DeviceArray<int> source(1);
    const DeviceArray<int> target(1);
    int stale = 0;
    for (int i = 0; i < 40; ++i) {
        EXPECT_EQ(cudaMemsetAsync(source.get(), i, 1, producer), cudaSuccess);
        EXPECT_EQ(cudaEventRecord(written, producer), cudaSuccess);
        if (with_event) {
            EXPECT_EQ(cudaStreamWaitEvent(consumer, written), cudaSuccess);
        }
        EXPECT_EQ(
            cudaMemcpyAsync(target.get(), source.get(), 1, cudaMemcpyDeviceToDevice, consumer),
            cudaSuccess);
        producer.synchronize();
        consumer.synchronize();
        stale += (target.values()[0] & 0xff) != i ? 1 : 0;
    }
    return stale;
}

TEST_F(StandInStreams, DelaysShowAMissingWait) {
    cuda_stand_in::set_delays({.seed = 7, .longest = 1000us});
    EXPECT_EQ(stale_reads(true), 0);
#if !CUDA_STAND_IN_TSAN  // a race on purpose
    EXPECT_GT(stale_reads(false), 0);
#endif
}

TEST_F(StandInStreams, EventsMeasureTime) {
    const Stream stream;
    const Event begin;
    const Event end;
    float ms = 0;
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
    ASSERT_EQ(cudaEventRecord(begin, stream), cudaSuccess);
    enqueue(stream, [] { std::this_thread::sleep_for(20ms); });
    ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
    ASSERT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaSuccess);
    EXPECT_GE(ms, 20.0F);
    EXPECT_LT(ms, 20'000.0F);
    const Event untimed(cudaEventDisableTiming);
    ASSERT_EQ(cudaEventRecord(untimed, stream), cudaSuccess);
    stream.synchronize();
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, untimed), cudaErrorInvalidResourceHandle);
}

TEST_F(StandInStreams, DestroyingAStreamDrainsIt) {
    std::atomic<int> done = 0;
    {
        const Stream stream;
        for (int i = 0; i < 50; ++i) {
            enqueue(stream, [&] { ++done; });
        }
    }
    EXPECT_EQ(done, 50);
}

TEST_F(StandInStreams, HandlesOfDestroyedObjectsAreRefused) {
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -3), cudaSuccess);
    ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
    ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
}

TEST_F(StandInStreams, AnEventBelongsToItsDevice) {
    cuda_stand_in::set_device_count(2);
    const Stream stream;
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    const Event event;
    EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    const Stream other;
    EXPECT_EQ(cudaEventRecord(event, other), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(stream, event), cudaSuccess);  // across devices: allowed
    EXPECT_EQ(cuda_stand_in::device_of(other), 1);
}

TEST_F(StandInStreams, TheDefaultStreamWaitsForBlockingStreamsOnly) {
    cudaStream_t blocking = nullptr;
    ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
    const Stream independent;
    Gate gate;
    gate.hold(independent);
    int value = 0;
    enqueue(blocking, [&] {
        std::this_thread::sleep_for(5ms);
        value = 1;
    });
    int seen = 0;
    enqueue(nullptr, [&] { seen = value; });
    EXPECT_EQ(seen, 1);
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(independent), cudaErrorNotReady);
    gate.open();
    ASSERT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(StandInStreams, BlockedWorkNoticesThatItIsToStop) {
    const Stream stream;
    std::mutex mutex;
    std::condition_variable_any never;
    std::atomic<bool> left = false;
    enqueue(stream, [&, stop = cuda_stand_in::stop_token_of(stream)] {
        std::unique_lock lock(mutex);
        never.wait(lock, stop, [] { return false; });
        left = true;
    });
    cuda_stand_in::stop_streams();
    stream.synchronize();
    EXPECT_TRUE(left);
}

TEST_F(StandInStreams, HostFunctionsRunInTheStream) {
    const Stream stream;
    int called = 0;
    ASSERT_EQ(cudaLaunchHostFunc(
                  stream, [](void* data) { ++*static_cast<int*>(data); }, &called),
              cudaSuccess);
    stream.synchronize();
    EXPECT_EQ(called, 1);
}

TEST_F(StandInStreams, NonBlockingOnesComeBeforeAMemsetThatNobodyWaitsFor) {
    const DeviceArray<char> bytes(std::vector<char>{1, 1});
    const Stream stream;
    const auto write = [&](int value) {
        EXPECT_EQ(cudaMemset(bytes.get(), value, 2), cudaSuccess);
        EXPECT_EQ(cudaMemsetAsync(bytes.get(), value + 1, 1, stream), cudaSuccess);
        stream.synchronize();
    };
    write(2);
    EXPECT_EQ(bytes.values(), (std::vector<char>{2, 2}));
    EXPECT_EQ(cudaMemset(bytes.get(), 4, 2), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(bytes.get(), 5, 1, stream), cudaSuccess);
    stream.synchronize();
    EXPECT_EQ(bytes.values(), (std::vector<char>{5, 4}));
}

TEST_F(StandInStreams, BlockingOnesComeAfterAMemset) {
    const DeviceArray<char> bytes(std::vector<char>{1});
    cudaStream_t blocking = nullptr;
    ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
    EXPECT_EQ(cudaMemset(bytes.get(), 2, 1), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(bytes.get(), 3, 1, blocking), cudaSuccess);
    EXPECT_EQ(bytes.values(), (std::vector<char>{3}));
    EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(StandInStreams, MemoryThatGoesWhileAStreamOfItsThreadRunsIsCounted) {
    const Stream stream;
    std::atomic<bool> let_go = false;
    auto memory = std::make_unique<DeviceArray<char>>(1);
    auto more = std::make_unique<DeviceArray<char>>(1);
    enqueue(stream, [&] { let_go.wait(false); });
    cuda_stand_in::reset_counters();
    const std::jthread later([&] {
        while (cuda_stand_in::counters().busy_frees == 0) std::this_thread::yield();
        let_go = true;
        let_go.notify_all();
    });
    memory.reset();
    EXPECT_EQ(cuda_stand_in::counters().busy_frees, 1U);
    more.reset();
    EXPECT_EQ(cuda_stand_in::counters().busy_frees, 1U) << "nothing runs any more";
}

TEST_F(StandInStreams, SynchronisationsAreCounted) {
    const Stream stream;
    cuda_stand_in::reset_counters();
    stream.synchronize();
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cuda_stand_in::counters(), (cuda_stand_in::Counters{.device_synchronisations = 2,
                                                                  .stream_synchronisations = 1}));
}

#if CUDA_STAND_IN_TSAN
void copy_without_waiting() {
    (void)stale_reads(false);
    std::exit(0);
}

TEST(StandInStreamsDeathTest, ThreadSanitizerReportsAMissingWait) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(copy_without_waiting(), testing::ExitedWithCode(66), "data race");
}
#endif

TEST(StandInStreamsDeathTest, WorkThatThrowsEndsTheProcess) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            const Stream stream;
            enqueue(stream, [] { throw std::runtime_error("broken"); });
            stream.synchronize();
        },
        "threw: broken");
}

}  // namespace
