// SPDX-License-Identifier: Apache-2.0
// main() of the GoogleTest programs that mpirun starts: every rank runs the same tests in the same
// order, ranks > 0 print failures only, one failure fails all, and a test that hangs ends the job.
#include "vocabpipe/world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace {

constexpr int kWatchdogExitCode = 124;
/// Seconds per test; VOCABPIPE_TEST_TIMEOUT changes it.
constexpr int kDefaultTimeout = 60;

/// Failures of ranks > 0, each line with its rank: the default printer of p ranks would be p-fold
/// noise.
class FailurePrinter final : public ::testing::EmptyTestEventListener {
public:
    explicit FailurePrinter(int rank) : prefix_("[rank " + std::to_string(rank) + "] ") {}

private:
    void OnTestStart(const ::testing::TestInfo& test) override {
        test_ = std::string(test.test_suite_name()) + "." + test.name();
    }
    void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (!result.failed()) return;
        const char* file = result.file_name() == nullptr ? "unknown file" : result.file_name();
        std::string text = test_ + ": " + file + ":" + std::to_string(result.line_number()) +
                           ":\n" + result.message() + "\n";
        std::string lines = prefix_;
        for (size_t i = 0; i < text.size(); ++i) {
            lines += text[i];
            if (text[i] == '\n' && i + 1 < text.size()) lines += prefix_;
        }
        std::fputs(lines.c_str(), stdout);
        std::fflush(stdout);
    }
    std::string prefix_, test_;
};

/// A rank that fails an assertion may leave the others waiting for ever: MPI_Abort ends them all.
class Watchdog final : public ::testing::EmptyTestEventListener {
public:
    Watchdog(vocabpipe::World& world, int rank, int seconds)
        : world_(world), rank_(rank), seconds_(seconds), thread_([this] { watch(); }) {}
    ~Watchdog() override {
        {
            const std::lock_guard lock(mutex_);
            ended_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }

private:
    void OnTestStart(const ::testing::TestInfo& test) override {
        const std::lock_guard lock(mutex_);
        test_ = std::string(test.test_suite_name()) + "." + test.name();
        ++tests_;
    }
    void OnTestEnd(const ::testing::TestInfo&) override {
        {
            const std::lock_guard lock(mutex_);
            test_.clear();
            ++tests_;
        }
        changed_.notify_all();
    }
    void watch() {
        std::unique_lock lock(mutex_);
        while (!ended_) {
            const int watched = tests_;
            const bool moved = changed_.wait_for(lock, std::chrono::seconds(seconds_),
                                                 [&] { return ended_ || tests_ != watched; });
            if (moved || test_.empty()) continue;
            std::fprintf(stderr, "[rank %d] watchdog: %s did not end within %d s\n", rank_,
                         test_.c_str(), seconds_);
            std::fflush(stdout);
            world_.abort(kWatchdogExitCode);
        }
    }
    vocabpipe::World& world_;
    int rank_, seconds_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string test_;
    int tests_ = 0;
    bool ended_ = false;
    std::thread thread_;
};

/// What decides which tests run in which order.
struct Order {
    int32_t seed = 0;
    int32_t repeat = 1;
    bool shuffle = false;
    std::string filter;
};

Order order_of_rank_0(vocabpipe::World& world) {
    // GoogleTest turns seed 0 into the time of day, which no two ranks share.
    Order mine{GTEST_FLAG_GET(random_seed), GTEST_FLAG_GET(repeat), GTEST_FLAG_GET(shuffle),
               GTEST_FLAG_GET(filter)};
    if (mine.seed == 0) {
        const auto now = std::chrono::system_clock::now().time_since_epoch().count();
        mine.seed = static_cast<int32_t>(now % 99999) + 1;
    }
    const int32_t numbers[3] = {mine.seed, mine.repeat, mine.shuffle ? 1 : 0};
    std::string wire(reinterpret_cast<const char*>(numbers), sizeof numbers);
    wire += mine.filter;
    Order order;
    world.run([&](vocabpipe::Communicator& communicator) {
        const auto all = communicator.all_gather(std::as_bytes(std::span(wire)));
        const std::string first(reinterpret_cast<const char*>(all.front().data()),
                                all.front().size());
        int32_t received[3];
        std::memcpy(received, first.data(), sizeof received);
        order = {received[0], received[1], received[2] != 0, first.substr(sizeof received)};
    });
    return order;
}

}  // namespace

int main(int argc, char** argv) {
    // Initialises MPI and outlives every world of the tests, which therefore never finalise it.
    vocabpipe::World world = vocabpipe::World::mpi({.timeout_seconds = 60});
    ::testing::InitGoogleTest(&argc, argv);
    int rank = 0;
    world.run([&](vocabpipe::Communicator& communicator) { rank = communicator.rank(); });

    const Order order = order_of_rank_0(world);
    GTEST_FLAG_SET(random_seed, order.seed);
    GTEST_FLAG_SET(repeat, order.repeat);
    GTEST_FLAG_SET(shuffle, order.shuffle);
    GTEST_FLAG_SET(filter, order.filter);

    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    if (rank > 0) {
        delete listeners.Release(listeners.default_result_printer());
        delete listeners.Release(listeners.default_xml_generator());  // p ranks, one file
        listeners.Append(new FailurePrinter(rank));
    }
    const char* timeout = std::getenv("VOCABPIPE_TEST_TIMEOUT");
    auto watchdog = std::make_unique<Watchdog>(
        world, rank, timeout == nullptr ? kDefaultTimeout : std::atoi(timeout));
    listeners.Append(watchdog.get());
    int result = RUN_ALL_TESTS();
    listeners.Release(watchdog.get());
    watchdog.reset();

    if (rank == 0 && ::testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
        std::printf("no test matches %s\n", order.filter.c_str());
        result = 1;
    }
    const int mine = result;
    world.run([&](vocabpipe::Communicator& communicator) {
        for (const auto& other : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
            int theirs = 0;
            std::memcpy(&theirs, other.data(), sizeof theirs);
            result = std::max(result, theirs);
        }
    });
    if (rank == 0 && mine == 0 && result != 0) {
        std::printf("FAILED on another rank: see the lines that start with [rank N]\n");
    }
    return result;
}
