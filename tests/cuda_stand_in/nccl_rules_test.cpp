// SPDX-License-Identifier: Apache-2.0
// The stand-in NCCL moves the right bytes, behaves as the library does where that is easy to get
// wrong, and catches every rule that it claims to enforce.
#include "tests/support/cuda_stand_in/nccl_rules.hpp"
#include "tests/support/cuda_stand_in/control.hpp"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using cuda_stand_in::nccl::AbortPatience;
using cuda_stand_in::nccl::ExpectBrokenRules;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One rank of a test, driven by the test's own thread: what it issues when is then certain.
struct Rank {
    explicit Rank(int device) : device(device) {
        use();
        EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess);
        EXPECT_EQ(cudaStreamCreate(&other_stream), cudaSuccess);
        EXPECT_EQ(cudaMalloc(&memory, kWords * 4), cudaSuccess);
    }
    ~Rank() {
        use();
        cudaStreamDestroy(stream);
        cudaStreamDestroy(other_stream);
        cudaFree(memory);
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    void use() const { cudaSetDevice(device); }
    [[nodiscard]] uint32_t* word(size_t i) const { return memory + i; }
    void write(size_t at, const std::vector<uint32_t>& values) const {
        use();
        cudaMemcpy(word(at), values.data(), values.size() * 4, cudaMemcpyHostToDevice);
    }
    [[nodiscard]] std::vector<uint32_t> read(size_t at, size_t count) const {
        use();
        std::vector<uint32_t> values(count);
        cudaMemcpy(values.data(), word(at), count * 4, cudaMemcpyDeviceToHost);
        return values;
    }
    [[nodiscard]] bool idle() const {
        return cudaStreamQuery(stream) == cudaSuccess &&
               cudaStreamQuery(other_stream) == cudaSuccess;
    }

    static constexpr size_t kWords = 256;
    int device;
    cudaStream_t stream = nullptr;
    cudaStream_t other_stream = nullptr;
    uint32_t* memory = nullptr;
};

void until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
        if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("still waiting");
        std::this_thread::yield();
    }
}

ncclResult_t state_of(ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    return state;
}

ncclConfig_t config_named(const char* name, int blocking = 0) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    config.commName = name;
    return config;
}

class Nccl : public ::testing::Test {
protected:
    void SetUp() override { cuda_stand_in::set_device_count(4); }
    void TearDown() override {
        ncclGroupStart();
        for (const auto& comm : left_) ncclCommAbort(comm);
        ncclGroupEnd();
        ranks_.clear();
    }

    /// Non-blocking communicators of `size` ranks on devices 0, 1, ...; ready.
    std::vector<ncclComm_t> communicator(int size, const char* name) {
        while (static_cast<int>(ranks_.size()) < size) {
            ranks_.push_back(std::make_unique<Rank>(static_cast<int>(ranks_.size())));
        }
        ncclUniqueId id;
        ncclGetUniqueId(&id);
        std::vector<ncclComm_t> comms(static_cast<size_t>(size));
        for (int r = 0; r < size; ++r) {
            rank(r).use();
            ncclConfig_t config = config_named(name);
            EXPECT_EQ(ncclCommInitRankConfig(&comms[static_cast<size_t>(r)], size, id, r, &config),
                      ncclInProgress);
            left_.push_back(comms[static_cast<size_t>(r)]);
        }
        settle(comms);
        return comms;
    }
    Rank& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
    /// Polls until nothing is in progress.
    static void settle(const std::vector<ncclComm_t>& comms) {
        for (int poll = 0; poll < 4; ++poll) {  // all of them at a time: they may wait for others
            for (const ncclComm_t comm : comms) (void)state_of(comm);
        }
        for (const ncclComm_t comm : comms) {
            until([&] { return state_of(comm) != ncclInProgress; });
        }
    }
    void finish() {
        until([&] {
            for (const auto& one : ranks_) {
                if (!one->idle()) return false;
            }
            return true;
        });
    }
    void gone(ncclComm_t comm) { std::erase(left_, comm); }

    std::vector<std::unique_ptr<Rank>> ranks_;
    std::vector<ncclComm_t> left_;  ///< to be aborted at the end
};

// --- what arrives --------------------------------------------------------------------------------

TEST_F(Nccl, SendAndReceiveMoveTheBytesOfEveryPair) {
    const auto comms = communicator(3, "pairs");
    for (int from = 0; from < 3; ++from) {
        for (int to = 0; to < 3; ++to) {
            if (from == to) continue;
            const auto seed = static_cast<uint32_t>(10 * from + to);
            rank(from).write(0, {seed, seed + 1});
            rank(to).write(4, {0, 0});
            EXPECT_EQ(ncclSend(rank(from).word(0), 2, ncclUint32, to, comms[size_t(from)],
                               rank(from).stream),
                      ncclInProgress);
            EXPECT_EQ(
                ncclRecv(rank(to).word(4), 2, ncclUint32, from, comms[size_t(to)], rank(to).stream),
                ncclInProgress);
            settle(comms);
            finish();
            EXPECT_THAT(rank(to).read(4, 2), ElementsAre(seed, seed + 1));
        }
    }
}

TEST_F(Nccl, CollectivesGiveWhatTheirNamesSay) {
    const auto comms = communicator(3, "collectives");
    const auto on_all = [&](const std::function<void(int, ncclComm_t)>& call) {
        for (int r = 0; r < 3; ++r) {
            rank(r).write(0, {uint32_t(r + 1), uint32_t(10 * r + 1), uint32_t(100 * r + 1)});
            rank(r).write(8, std::vector<uint32_t>(9, 7));
        }
        for (int r = 0; r < 3; ++r) call(r, comms[size_t(r)]);
        settle(comms);
        finish();
    };
    on_all([&](int r, ncclComm_t c) {
        ncclBroadcast(rank(r).word(0), rank(r).word(8), 2, ncclUint32, 1, c, rank(r).stream);
    });
    for (int r = 0; r < 3; ++r) EXPECT_THAT(rank(r).read(8, 3), ElementsAre(2u, 11u, 7u));
    on_all([&](int r, ncclComm_t c) {
        ncclAllGather(rank(r).word(0), rank(r).word(8), 2, ncclUint32, c, rank(r).stream);
    });
    for (int r = 0; r < 3; ++r) {
        EXPECT_THAT(rank(r).read(8, 7), ElementsAre(1u, 1u, 2u, 11u, 3u, 21u, 7u));
    }
    on_all([&](int r, ncclComm_t c) {
        ncclReduce(rank(r).word(0), rank(r).word(8), 2, ncclUint32, ncclSum, 2, c, rank(r).stream);
    });
    EXPECT_THAT(rank(2).read(8, 3), ElementsAre(6u, 33u, 7u));
    EXPECT_THAT(rank(0).read(8, 1), ElementsAre(7u));
    on_all([&](int r, ncclComm_t c) {
        ncclAllReduce(rank(r).word(0), rank(r).word(0), 3, ncclUint32, ncclMax, c, rank(r).stream);
    });
    for (int r = 0; r < 3; ++r) EXPECT_THAT(rank(r).read(0, 3), ElementsAre(3u, 21u, 201u));
    on_all([&](int r, ncclComm_t c) {
        ncclReduceScatter(rank(r).word(0), rank(r).word(8), 1, ncclUint32, ncclSum, c,
                          rank(r).stream);
    });
    EXPECT_THAT(rank(0).read(8, 2), ElementsAre(6u, 7u));
    EXPECT_THAT(rank(1).read(8, 2), ElementsAre(33u, 7u));
    EXPECT_THAT(rank(2).read(8, 2), ElementsAre(303u, 7u));
}

TEST_F(Nccl, BfloatSumsAreRoundedAtEveryHopOfARing) {
    const auto comms = communicator(3, "bf16");
    // 1, 2^-8, 2^-8: in rank order both small ones are lost, added first they are not.
    constexpr uint16_t kOne = 0x3f80;
    constexpr uint16_t kSmall = 0x3b80;
    for (int r = 0; r < 3; ++r) {
        rank(r).write(0, {r == 0 ? kOne : kSmall});
        ncclReduce(rank(r).word(0), rank(r).word(1), 1, ncclBfloat16, ncclSum, 0, comms[size_t(r)],
                   rank(r).stream);
    }
    settle(comms);
    finish();
    EXPECT_EQ(rank(0).read(1, 1).front() & 0xffff, 0x3f81u);  // 1 + 2^-7
}

TEST_F(Nccl, SplitMakesCommunicatorsOfEqualColorInTheOrderOfTheKeys) {
    const auto comms = communicator(3, "parent");
    std::vector<ncclComm_t> parts(3);
    ncclConfig_t config = config_named("part");
    for (int r = 0; r < 3; ++r) {
        rank(r).use();
        const int color = r == 1 ? NCCL_SPLIT_NOCOLOR : 5;
        EXPECT_EQ(ncclCommSplit(comms[size_t(r)], color, -r, &parts[size_t(r)], &config),
                  ncclInProgress);
        EXPECT_EQ(parts[size_t(r)], nullptr) << "only known when the parent is ready again";
    }
    settle(comms);
    EXPECT_EQ(parts[1], nullptr);
    int place = -1;
    int count = -1;
    EXPECT_EQ(ncclCommUserRank(parts[2], &place), ncclSuccess);
    EXPECT_EQ(ncclCommCount(parts[2], &count), ncclSuccess);
    EXPECT_EQ(place, 0);
    EXPECT_EQ(count, 2);
    left_.push_back(parts[0]);
    left_.push_back(parts[2]);
}

// --- when things happen --------------------------------------------------------------------------

TEST_F(Nccl, InitialisationAndFirstConnectionTakeSeveralPolls) {
    ranks_.push_back(std::make_unique<Rank>(0));
    ranks_.push_back(std::make_unique<Rank>(1));
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclConfig_t config = config_named("slow");
    std::vector<ncclComm_t> comms(2);
    rank(0).use();
    ncclCommInitRankConfig(&comms[0], 2, id, 0, &config);
    for (int i = 0; i < 10; ++i)
        EXPECT_EQ(state_of(comms[0]), ncclInProgress) << "rank 1 is absent";
    rank(1).use();
    ncclCommInitRankConfig(&comms[1], 2, id, 1, &config);
    EXPECT_EQ(state_of(comms[0]), ncclSuccess);
    for (int i = 0; i < cuda_stand_in::nccl::kPollsToConnect; ++i) {
        EXPECT_EQ(state_of(comms[1]), ncclInProgress);
    }
    EXPECT_EQ(state_of(comms[1]), ncclSuccess);
    left_ = comms;

    rank(0).write(0, {42});
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(state_of(comms[0]), ncclInProgress) << "not connected";
    EXPECT_TRUE(rank(0).idle()) << "nothing is on the stream while the call is in progress";
    ncclRecv(rank(1).word(0), 1, ncclUint32, 0, comms[1], rank(1).stream);
    settle(comms);
    finish();
    EXPECT_THAT(rank(1).read(0, 1), ElementsAre(42u));
    // Connected now: the next send is on its stream without its receive.
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
    settle({comms[0]});
    EXPECT_FALSE(rank(0).idle());
}

TEST_F(Nccl, SendEndsWhenItsReceiveRuns) {
    const auto comms = communicator(2, "rendezvous");
    for (int message = 0; message < 2; ++message) {
        ncclSend(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
        if (message == 1) {
            settle({comms[0]});
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            EXPECT_FALSE(rank(0).idle());
        }
        ncclRecv(rank(1).word(0), 1, ncclUint32, 0, comms[1], rank(1).stream);
        settle(comms);
        finish();
    }
}

TEST_F(Nccl, GroupStartsNothingBeforeItsEndAndItsMessagesDoNotWaitForEachOther) {
    const auto comms = communicator(2, "group");
    rank(0).write(0, {1});
    rank(1).write(0, {2});
    for (int r = 0; r < 2; ++r) {
        ncclGroupStart();
        ncclSend(rank(r).word(0), 1, ncclUint32, 1 - r, comms[size_t(r)], rank(r).stream);
        EXPECT_EQ(state_of(comms[size_t(r)]), ncclSuccess) << "not yet issued";
        ncclRecv(rank(r).word(1), 1, ncclUint32, 1 - r, comms[size_t(r)], rank(r).stream);
        EXPECT_TRUE(rank(r).idle());
        EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    }
    settle(comms);
    finish();
    EXPECT_THAT(rank(0).read(1, 1), ElementsAre(2u));
    EXPECT_THAT(rank(1).read(1, 1), ElementsAre(1u));
}

TEST_F(Nccl, MessagesOfAPairArriveInTheOrderIssuedAlsoWithinAGroup) {
    const auto comms = communicator(2, "order");
    rank(0).write(0, {1, 2, 3});
    ncclGroupStart();
    for (const size_t i : {size_t{0}, size_t{1}, size_t{2}}) {
        ncclSend(rank(0).word(i), 1, ncclUint32, 1, comms[0], rank(0).stream);
    }
    ncclGroupEnd();
    for (const size_t i : {size_t{7}, size_t{6}, size_t{5}}) {
        ncclRecv(rank(1).word(i), 1, ncclUint32, 0, comms[1], rank(1).stream);
        settle({comms[1]});
    }
    settle(comms);
    finish();
    EXPECT_THAT(rank(1).read(5, 3), ElementsAre(3u, 2u, 1u));
}

/// NCCL_LAUNCH_ORDER_IMPLICIT for as long as it lives.
class ImplicitOrder {
public:
    explicit ImplicitOrder(const char* value) {
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", value, /*overwrite=*/1);
    }
    ~ImplicitOrder() { unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT"); }
    ImplicitOrder(const ImplicitOrder&) = delete;
    ImplicitOrder& operator=(const ImplicitOrder&) = delete;
};

/// Something that a stream waits for until it is opened, as a send waits for its pass.
class Gate {
public:
    explicit Gate(cudaStream_t waits) {
        cudaStreamCreate(&holder_);
        cudaEventCreate(&event_);
        cudaLaunchHostFunc(
            holder_,
            [](void* flag) {
                while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
            },
            &open_);
        cudaEventRecord(event_, holder_);
        cudaStreamWaitEvent(waits, event_, 0);
    }
    ~Gate() {
        open();
        cudaStreamDestroy(holder_);
        cudaEventDestroy(event_);
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    void open() { open_ = true; }

private:
    cudaStream_t holder_{};
    cudaEvent_t event_{};
    std::atomic<bool> open_{false};
};

TEST_F(Nccl, LaunchesOfOneDeviceDoNotOvertakeEachOtherOnDifferentStreams) {
    const ImplicitOrder implicit("1");
    const auto a = communicator(2, "a");
    const auto b = communicator(2, "b");
    rank(0).use();
    Gate pass(rank(0).stream);  // only the stream of the first launch waits
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, a[0], rank(0).stream);
    ncclRecv(rank(1).word(0), 1, ncclUint32, 0, a[1], rank(1).stream);
    settle(a);
    ncclSend(rank(0).word(1), 1, ncclUint32, 1, b[0], rank(0).other_stream);
    ncclRecv(rank(1).word(1), 1, ncclUint32, 0, b[1], rank(1).other_stream);
    settle(b);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(cudaStreamQuery(rank(0).other_stream), cudaErrorNotReady);
    pass.open();
    finish();
}

TEST_F(Nccl, WithoutTheImplicitOrderAReadyLaunchOvertakesOneThatWaits) {
    const ImplicitOrder none("0");
    const auto a = communicator(2, "a");
    const auto b = communicator(2, "b");
    rank(0).use();
    Gate pass(rank(0).stream);
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, a[0], rank(0).stream);
    ncclRecv(rank(1).word(0), 1, ncclUint32, 0, a[1], rank(1).stream);
    settle(a);
    ncclSend(rank(0).word(1), 1, ncclUint32, 1, b[0], rank(0).other_stream);
    ncclRecv(rank(1).word(1), 1, ncclUint32, 0, b[1], rank(1).other_stream);
    settle(b);
    until([&] { return cudaStreamQuery(rank(0).other_stream) == cudaSuccess; });
    EXPECT_EQ(cudaStreamQuery(rank(0).stream), cudaErrorNotReady);
    pass.open();
    finish();
}

/// Nor for launches of other devices: that of rank 0 has not started, either.
TEST_F(Nccl, ALaunchWaitsForTheStartOfTheOneBeforeNotForItsEnd) {
    const ImplicitOrder implicit("1");
    const auto a = communicator(2, "a");
    const auto b = communicator(3, "b");
    rank(0).use();
    Gate pass(rank(0).stream);
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, a[0], rank(0).stream);
    ncclRecv(rank(1).word(0), 1, ncclUint32, 0, a[1], rank(1).stream);
    settle(a);
    ncclRecv(rank(1).word(1), 1, ncclUint32, 2, b[1], rank(1).other_stream);
    ncclSend(rank(2).word(1), 1, ncclUint32, 1, b[2], rank(2).stream);
    settle(b);
    until([&] { return cudaStreamQuery(rank(1).other_stream) == cudaSuccess; });
    EXPECT_EQ(cudaStreamQuery(rank(1).stream), cudaErrorNotReady) << "its sender waits for a pass";
    pass.open();
    finish();
}

TEST_F(Nccl, BlockingCallsOfThreadsMeetAndReturn) {
    for (int r = 0; r < 3; ++r) ranks_.push_back(std::make_unique<Rank>(r));
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    std::vector<std::jthread> threads;
    for (int r = 0; r < 3; ++r) {
        threads.emplace_back([&, r] {
            rank(r).use();
            ncclComm_t comm = nullptr;
            ncclConfig_t config = config_named("blocking", 1);
            EXPECT_EQ(ncclCommInitRankConfig(&comm, 3, id, r, &config), ncclSuccess);
            rank(r).write(0, {uint32_t(r)});
            EXPECT_EQ(ncclAllReduce(rank(r).word(0), rank(r).word(1), 1, ncclInt32, ncclSum, comm,
                                    rank(r).stream),
                      ncclSuccess);
            EXPECT_EQ(cudaStreamSynchronize(rank(r).stream), cudaSuccess);
            EXPECT_THAT(rank(r).read(1, 1), ElementsAre(3u));
            EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
            EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
        });
    }
}

TEST_F(Nccl, OperationsWithADeadPeerStayPendingUntilTheyAreAborted) {
    const auto comms = communicator(2, "dead");
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
    ncclRecv(rank(1).word(0), 1, ncclUint32, 0, comms[1], rank(1).stream);
    settle(comms);
    finish();
    ncclRecv(rank(1).word(0), 1, ncclUint32, 0, comms[1], rank(1).stream);
    settle({comms[1]});
    EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
    gone(comms[0]);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(rank(1).idle()) << "the abort of one rank tells the others nothing";
    EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
    gone(comms[1]);
    finish();
}

/// Rank 0 after its peer died: a message from it runs on "everyone", and one to it on "backward" is
/// enqueued behind what waits for the first.
class NcclAborts : public Nccl {
protected:
    void SetUp() override {
        Nccl::SetUp();
        everyone_ = communicator(2, "everyone");
        backward_ = communicator(2, "backward");
        for (const auto& comms : {everyone_, backward_}) {  // connections
            ncclRecv(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
            ncclSend(rank(1).word(0), 1, ncclUint32, 0, comms[1], rank(1).stream);
            settle(comms);
            finish();
        }
        rank(0).use();
        EXPECT_EQ(cudaEventCreateWithFlags(&arrived_, cudaEventDisableTiming), cudaSuccess);
        ncclRecv(rank(0).word(0), 1, ncclUint32, 1, everyone_[0], rank(0).stream);
        settle({everyone_[0]});
        cudaEventRecord(arrived_, rank(0).stream);
        cudaStreamWaitEvent(rank(0).other_stream, arrived_, 0);
        ncclRecv(rank(0).word(1), 1, ncclUint32, 1, backward_[0], rank(0).other_stream);
        settle({backward_[0]});
    }
    void TearDown() override {
        Nccl::TearDown();
        cudaEventDestroy(arrived_);
    }
    std::vector<ncclComm_t> everyone_, backward_;
    cudaEvent_t arrived_ = nullptr;
};

TEST_F(NcclAborts, OfAllCommunicatorsInOneGroupEndWhatRunsAndWhatIsEnqueued) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (const ncclComm_t comm : {backward_[0], everyone_[0]}) {
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
        gone(comm);
    }
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    until([&] { return rank(0).idle(); });
}

TEST_F(NcclAborts, OneAfterTheOtherAreCaughtWhenAKernelWaitsForOneThatNobodyToldToEnd) {
    const ExpectBrokenRules rules;
    const AbortPatience short_one(0.2);
    ncclCommAbort(backward_[0]);
    gone(backward_[0]);
    EXPECT_THAT(
        rules.texts(),
        ElementsAre(AllOf(
            HasSubstr("all communicators of a device must be aborted in one group: the abort of "
                      "rank 0 of 'backward' waits for operation 2"),
            HasSubstr("operation 2 of rank 0 on 'everyone' (receive of 1 x uint32 from rank 1) "
                      "runs and was not told to end"))));
}

// --- what the library refuses itself -------------------------------------------------------------

TEST_F(Nccl, RefusesADeviceTwiceInOneCommunicator) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    std::vector<ncclComm_t> comms(2);
    cudaSetDevice(0);
    ncclConfig_t config = config_named("twice");
    for (int r = 0; r < 2; ++r) ncclCommInitRankConfig(&comms[size_t(r)], 2, id, r, &config);
    settle(comms);
    for (const ncclComm_t comm : comms) EXPECT_EQ(state_of(comm), ncclInvalidUsage);
    EXPECT_THAT(std::string(ncclGetLastError(nullptr)),
                HasSubstr("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 0"));
    left_ = comms;
}

TEST_F(Nccl, RefusesCallsOnACommunicatorThatIsNotReady) {
    ranks_.push_back(std::make_unique<Rank>(0));
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclComm_t comm = nullptr;
    ncclConfig_t config = config_named("early");
    rank(0).use();
    ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    left_ = {comm};
    EXPECT_EQ(ncclSend(rank(0).word(0), 1, ncclUint32, 1, comm, rank(0).stream),
              ncclInvalidArgument);
    EXPECT_THAT(std::string(ncclGetLastError(comm)), HasSubstr("still in progress"));
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
}

TEST_F(Nccl, RefusesWrongArguments) {
    const auto comms = communicator(2, "arguments");
    cudaStream_t stream = rank(0).stream;
    EXPECT_EQ(ncclSend(rank(0).word(0), 1, ncclUint32, 2, comms[0], stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(rank(0).word(0), 1, ncclNumTypes, 1, comms[0], stream), ncclInvalidArgument);
    EXPECT_EQ(ncclSend(rank(0).word(0), 1, ncclUint32, 1, nullptr, stream), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    ncclConfig_t config{};
    ncclComm_t part = nullptr;
    EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &part, &config), ncclInvalidArgument);
}

// --- rules ---------------------------------------------------------------------------------------

TEST_F(Nccl, CatchesMessagesWhoseCountsDiffer) {
    const ExpectBrokenRules rules;
    const auto comms = communicator(2, "edge");
    ncclSend(rank(0).word(0), 3, ncclUint32, 1, comms[0], rank(0).stream);
    EXPECT_EQ(ncclRecv(rank(1).word(0), 4, ncclUint32, 0, comms[1], rank(1).stream),
              ncclInternalError);
    EXPECT_THAT(rules.texts(),
                ElementsAre("counts and types of a message must be equal on both ends: operation 1 "
                            "of rank 1 on 'edge' (receive of 4 x uint32 from rank 0) meets "
                            "operation 1 of rank 0 on 'edge' (send of 3 x uint32 to rank 1)"));
    EXPECT_EQ(state_of(comms[0]), ncclInternalError) << "and rank 0 does not hang";
}

TEST_F(Nccl, CatchesMessagesWhoseTypesDiffer) {
    const ExpectBrokenRules rules;
    const auto comms = communicator(2, "edge");
    ncclSend(rank(0).word(0), 3, ncclUint32, 1, comms[0], rank(0).stream);
    ncclRecv(rank(1).word(0), 3, ncclFloat32, 0, comms[1], rank(1).stream);
    EXPECT_THAT(rules.texts(), ElementsAre(HasSubstr("counts and types of a message")));
}

TEST_F(Nccl, CatchesCollectivesThatDifferInKindCountTypeRootOrReduction) {
    using Collective = std::function<void(int, ncclComm_t)>;
    const auto broadcast = [&](size_t count, ncclDataType_t type, int root) {
        return [=, this](int r, ncclComm_t c) {
            ncclBroadcast(rank(r).word(0), rank(r).word(0), count, type, root, c, rank(r).stream);
        };
    };
    const auto reduce = [&](ncclRedOp_t op) {
        return [=, this](int r, ncclComm_t c) {
            ncclAllReduce(rank(r).word(0), rank(r).word(0), 2, ncclInt32, op, c, rank(r).stream);
        };
    };
    const auto gather = [&](int r, ncclComm_t c) {
        ncclAllGather(rank(r).word(0), rank(r).word(8), 2, ncclInt32, c, rank(r).stream);
    };
    const std::vector<std::pair<Collective, Collective>> pairs{
        {broadcast(2, ncclInt32, 0), gather},
        {broadcast(2, ncclInt32, 0), broadcast(3, ncclInt32, 0)},
        {broadcast(2, ncclInt32, 0), broadcast(2, ncclUint32, 0)},
        {broadcast(2, ncclInt32, 0), broadcast(2, ncclInt32, 1)},
        {reduce(ncclSum), reduce(ncclMax)}};
    for (const auto& [one, other] : pairs) {
        const ExpectBrokenRules rules;
        const auto comms = communicator(2, "ring");
        one(0, comms[0]);
        other(1, comms[1]);
        EXPECT_THAT(rules.texts(), ElementsAre(HasSubstr("the collectives of a communicator")));
    }
}

TEST_F(Nccl, CatchesCollectivesInDifferentOrder) {
    const ExpectBrokenRules rules;
    const auto comms = communicator(2, "ring");
    const auto call = [&](int r, bool first) {
        if (first) {
            ncclBroadcast(rank(r).word(0), rank(r).word(0), 1, ncclInt32, 0, comms[size_t(r)],
                          rank(r).stream);
        } else {
            ncclAllGather(rank(r).word(0), rank(r).word(8), 1, ncclInt32, comms[size_t(r)],
                          rank(r).stream);
        }
    };
    ncclGroupStart();
    call(0, true);
    call(0, false);
    ncclGroupEnd();
    ncclGroupStart();
    call(1, false);
    call(1, true);
    ncclGroupEnd();
    EXPECT_THAT(rules.texts(),
                ElementsAre(AllOf(HasSubstr("same order"), HasSubstr("operation 1 of rank 1"))));
}

/// Connects everybody with everybody, so that lone calls are launched at once.
#define CONNECT(comms)                                                                   \
    do {                                                                                 \
        for (size_t from = 0; from < (comms).size(); ++from) {                           \
            for (size_t to = 0; to < (comms).size(); ++to) {                             \
                if (from == to) continue;                                                \
                ncclSend(rank(int(from)).word(0), 1, ncclUint32, int(to), (comms)[from], \
                         rank(int(from)).stream);                                        \
                ncclRecv(rank(int(to)).word(0), 1, ncclUint32, int(from), (comms)[to],   \
                         rank(int(to)).stream);                                          \
                settle(comms);                                                           \
            }                                                                            \
        }                                                                                \
    } while (false)

TEST_F(Nccl, CatchesTwoCommunicatorsInOppositeOrder) {
    const ExpectBrokenRules rules;
    const auto a = communicator(2, "a");
    const auto b = communicator(2, "b");
    CONNECT(a);
    CONNECT(b);
    const auto send = [&](const std::vector<ncclComm_t>& comms) {
        ncclSend(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
        settle({comms[0]});
    };
    const auto receive = [&](const std::vector<ncclComm_t>& comms) {
        ncclRecv(rank(1).word(0), 1, ncclUint32, 0, comms[1], rank(1).stream);
        settle({comms[1]});
    };
    send(a);
    send(b);
    EXPECT_THAT(rules.texts(), IsEmpty()) << "nothing is wrong yet";
    receive(b);
    EXPECT_THAT(
        rules.texts(),
        ElementsAre(AllOf(HasSubstr("one order over all communicators"), HasSubstr("rank 0 on 'a'"),
                          HasSubstr("rank 1 on 'b'"), HasSubstr("waits for device 1"),
                          HasSubstr("waits for device 0"))));
}

TEST_F(Nccl, CatchesLoneSendsThatFaceEachOther) {
    const ExpectBrokenRules rules;
    const auto comms = communicator(2, "facing");
    CONNECT(comms);
    for (int r = 0; r < 2; ++r) {
        ncclSend(rank(r).word(0), 1, ncclUint32, 1 - r, comms[size_t(r)], rank(r).stream);
        settle({comms[size_t(r)]});
    }
    EXPECT_THAT(rules.texts(), ElementsAre(HasSubstr("one order over all communicators")));
}

TEST_F(Nccl, CatchesACircleThroughThreeRanksAndACollective) {
    const ExpectBrokenRules rules;
    const auto messages = communicator(3, "messages");
    const auto ring = communicator(3, "ring");
    CONNECT(messages);
    const auto gather = [&](int r) {
        ncclAllGather(rank(r).word(0), rank(r).word(8), 1, ncclInt32, ring[size_t(r)],
                      rank(r).stream);
    };
    for (int r = 0; r < 3; ++r) gather(r);
    settle(ring);
    finish();
    gather(0);
    settle({ring[0]});
    ncclSend(rank(1).word(0), 1, ncclUint32, 2, messages[1], rank(1).stream);  // before its gather
    settle({messages[1]});
    EXPECT_THAT(rules.texts(), IsEmpty());
    ncclRecv(rank(2).word(0), 1, ncclUint32, 0, messages[2], rank(2).stream);  // 0 is in the ring
    EXPECT_THAT(rules.texts(),
                ElementsAre(AllOf(HasSubstr("device 0 stands at"), HasSubstr("device 1 stands at"),
                                  HasSubstr("device 2 stands at"))));
}

TEST_F(Nccl, CatchesALaunchThatOvertakesOneStillInProgress) {
    const ExpectBrokenRules rules;
    const auto a = communicator(2, "a");
    const auto b = communicator(2, "b");
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, a[0], rank(0).stream);
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, b[0], rank(0).stream);
    EXPECT_THAT(rules.texts(), ElementsAre(AllOf(HasSubstr("rank 0 on 'b'"),
                                                 HasSubstr("while rank 0 of 'a' is still"))));
}

TEST_F(Nccl, CatchesTwoThreadsOnOneDevice) {
    const ExpectBrokenRules rules;
    const auto a = communicator(2, "a");
    const auto b = communicator(2, "b");
    ncclGroupStart();
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, a[0], rank(0).stream);
    std::jthread([&] {
        ncclSend(rank(0).word(1), 1, ncclUint32, 1, b[0], rank(0).other_stream);
    }).join();
    ncclGroupEnd();
    EXPECT_THAT(rules.texts(),
                ::testing::Contains(AllOf(HasSubstr("must come from one thread"),
                                          HasSubstr("issues on 'b'"), HasSubstr("device 0"))));
}

TEST_F(Nccl, CatchesUseAfterTheEnd) {
    const ExpectBrokenRules rules;
    const auto comms = communicator(2, "ended");
    ncclCommAbort(comms[0]);
    gone(comms[0]);
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
    EXPECT_THAT(rules.texts(), ElementsAre(AllOf(HasSubstr("gone after"), HasSubstr("ncclSend"))));
    ncclCommAbort(comms[0]);
    EXPECT_EQ(rules.texts().size(), 2u);
    ncclCommDestroy(comms[1]);
    gone(comms[1]);
    ncclResult_t state{};
    ncclCommGetAsyncError(comms[1], &state);
    EXPECT_EQ(rules.texts().size(), 3u);
}

TEST_F(Nccl, CatchesOperationsOnAFinalizedCommunicator) {
    const ExpectBrokenRules rules;
    const auto comms = communicator(2, "final");
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
    settle(comms);
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
    EXPECT_THAT(rules.texts(), ElementsAre(HasSubstr("can only be destroyed")));
}

TEST_F(Nccl, CatchesDestructionAndSplitWithOutstandingOperations) {
    const ExpectBrokenRules rules;
    const auto comms = communicator(2, "busy");
    CONNECT(comms);
    finish();
    ncclSend(rank(0).word(0), 1, ncclUint32, 1, comms[0], rank(0).stream);
    settle({comms[0]});
    ncclConfig_t config = config_named("part");
    ncclComm_t part = nullptr;
    EXPECT_EQ(ncclCommSplit(comms[0], 0, 0, &part, &config), ncclInvalidUsage);
    EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidUsage);
    EXPECT_THAT(rules.texts(), ElementsAre(HasSubstr("outstanding on a communicator that is split"),
                                           HasSubstr("cannot be destroyed")));
}

TEST_F(Nccl, CatchesARankThatJoinsTwice) {
    const ExpectBrokenRules rules;
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclConfig_t config = config_named("joined");
    ncclComm_t comm = nullptr;
    ncclComm_t again = nullptr;
    ncclCommInitRankConfig(&comm, 2, id, 0, &config);
    left_ = {comm};
    EXPECT_EQ(ncclCommInitRankConfig(&again, 2, id, 0, &config), ncclInvalidUsage);
    EXPECT_THAT(rules.texts(), ElementsAre(HasSubstr("every rank joins a communicator once")));
}

TEST(NcclDeathTest, BrokenRuleThatNobodyExpectsEndsTheProcess) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(cuda_stand_in::nccl::break_rule("no rule at all"), "broken rule: no rule at all");
}

}  // namespace
