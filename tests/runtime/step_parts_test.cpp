// SPDX-License-Identifier: Apache-2.0
// Parts of a rank's steps, each by itself.
#include "src/runtime/abandon_line.hpp"
#include "src/runtime/device/forwarding_device.hpp"
#include "src/runtime/device_batch.hpp"
#include "src/runtime/step_memory.hpp"
#include "src/runtime/stuck_report.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// --- a step's batch ------------------------------------------------------------------------------

/// The host, as if work on it were enqueued.
class EnqueuingHost final : public ForwardingDevice {
public:
    EnqueuingHost() : ForwardingDevice(make_host_device()) {}
    [[nodiscard]] bool asynchronous() const override { return true; }
};

template <typename T>
std::vector<T> values_of(std::span<const T> span) {
    return {span.begin(), span.end()};
}

TEST(DeviceBatch, HasCopiesAndTheSumOfTheLossGradientsWhereTheHostCannotReadThem) {
    EnqueuingHost device;
    DeviceBatch batch;
    const std::vector<int32_t> tokens{4, 5, 6}, labels{5, 6, -1}, first_visible{0, 0, 2};
    const std::vector<float> gradient{0.25F, 0.5F, 0};
    const std::vector<Microbatch> host{
        {.index = 0,
         .sequences = 1,
         .seq_length = 3,
         .tokens = tokens,
         .labels = labels,
         .loss_gradient = gradient,
         .first_visible = first_visible},
        {.index = 1, .sequences = 1, .seq_length = 3, .tokens = labels, .labels = tokens}};
    const auto loaded = batch.load(device, host);
    ASSERT_EQ(loaded.size(), 2U);
    EXPECT_EQ(loaded[0].loss_weight, 0.75);
    EXPECT_EQ(loaded[1].loss_weight, 0) << "without labels that count";
    EXPECT_NE(loaded[0].tokens.data(), tokens.data());
    EXPECT_EQ(values_of(loaded[0].tokens), tokens);
    EXPECT_EQ(values_of(loaded[0].labels), labels);
    EXPECT_EQ(values_of(loaded[0].loss_gradient), gradient);
    EXPECT_EQ(values_of(loaded[0].first_visible), first_visible);
    EXPECT_EQ(values_of(loaded[1].tokens), labels);
    EXPECT_EQ(values_of(loaded[1].labels), tokens);
    EXPECT_THAT(loaded[1].first_visible, IsEmpty());
}

TEST(DeviceBatch, IsTheHostsOwnWhereOperatorsReadTheHostsMemory) {
    const std::unique_ptr<Device> device = make_host_device();
    EXPECT_FALSE(device->asynchronous());
    DeviceBatch batch;
    const std::vector<Microbatch> host(2);
    EXPECT_EQ(batch.load(*device, host).data(), host.data());
}

// --- memory --------------------------------------------------------------------------------------

/// Keeps what was allocated of it.
class RecordingHost final : public ForwardingDevice {
public:
    RecordingHost() : ForwardingDevice(make_host_device()) {}
    [[nodiscard]] DeviceMemory allocate(uint64_t bytes, const std::string& what) override {
        allocated.push_back(bytes);
        return ForwardingDevice::allocate(bytes, what);
    }
    std::vector<uint64_t> allocated;
};

TEST(ArenaOfStep, IsAllocatedAgainOnlyForAProgramThatNeedsMore) {
    RecordingHost device;
    const RankModules modules;
    const StepSizes sizes;
    vocabpipe::StepMemory memory(device, modules, sizes);
    for (const uint64_t bytes : {4096, 4096, 100, 8192, 8192, 4096}) {
        memory.reserve(bytes, "the arena");
    }
    EXPECT_THAT(device.allocated, ElementsAre(4096, 8192));
    EXPECT_EQ(memory.arena_bytes(), 8192);
}

// --- reports -------------------------------------------------------------------------------------

/// Lanes on which these actions have run.
class LanesOfTest final : public Lanes {
public:
    [[nodiscard]] bool finished(uint32_t action) override { return has_run.contains(action); }
    std::set<uint32_t> has_run;
};

/// Program of the first of two ranks in 1F1B.
Program first_of_two_ranks(int microbatches, VocabMode mode = VocabMode::none) {
    const Schedule schedule = make_schedule(
        "1f1b", {.ranks = 2, .microbatches = microbatches, .vocab_mode = mode, .vocab_size = 64});
    StepSizes sizes{.tokens = 8, .hidden = 4};
    sizes.stages.resize(2);
    sizes.shards.resize(2, {.exp_logits = 64});
    return lower(schedule, sizes, TableCosts::uniform(2, 2, 1000, 2000, 500)).front();
}

TEST(StuckReport, NamesTheFirstTransferOfAStreamThatHasNotRun) {
    const Program program = first_of_two_ranks(3);
    LoadedProgram loaded(program, true);
    StepProgress progress;
    progress.begin(loaded);
    for (uint32_t i = 0; i < loaded.actions(); ++i) {
        const Action& action = progress.action(i);
        if (action.what == Do::send && action.lane == Lane::forward) progress.started.push_back(i);
    }
    ASSERT_EQ(progress.started.size(), 3U);
    LanesOfTest lanes;
    const StuckReport report(0, true, progress, lanes);
    const auto named = [&](int microbatch) {
        return HasSubstr("activation of microbatch " + std::to_string(microbatch));
    };
    EXPECT_THAT(report.where(5), AllOf(named(0), Not(named(1)), Not(named(2))));
    // A later one may have been seen to have run before an earlier one is looked at again.
    lanes.has_run = {progress.started[0]};
    EXPECT_THAT(report.where(5), AllOf(Not(named(0)), named(1), Not(named(2))));
    lanes.has_run.insert(progress.started[1]);
    EXPECT_THAT(report.where(5), AllOf(Not(named(0)), Not(named(1)), named(2)));
}

// Passes of a device with streams may be in its queue; what is in flight says that they are not.
TEST(StuckReport, SaysWhetherAllPassesHaveRunOrWereOnlyStarted) {
    const Program program = first_of_two_ranks(2);
    LoadedProgram loaded(program, true);
    StepProgress progress;
    progress.begin(loaded);
    for (size_t queue = 0; queue < progress.head.size(); ++queue) {
        progress.head[queue] = loaded.queues[queue].size();
    }
    ASSERT_EQ(progress.current_pass(), nullptr);
    LanesOfTest lanes;
    const auto has_run = HasSubstr(": has run all its passes and waits");
    EXPECT_THAT(StuckReport(0, false, progress, lanes).where(5), has_run);
    EXPECT_THAT(StuckReport(0, true, progress, lanes).where(5),
                HasSubstr(": has started all its passes and waits"));
    progress.in_flight.push_back({});
    EXPECT_THAT(StuckReport(0, true, progress, lanes).where(5), has_run);
    EXPECT_THAT(StuckReport(0, false, progress, lanes).where(5), has_run);
}

// Names of actions are those of the program, and members of a group are named but for the rank.
TEST(StuckReport, IsOneLineOfTheRankItsPassAndWhatItAwaits) {
    const Program program = first_of_two_ranks(2, VocabMode::one_barrier);
    LoadedProgram loaded(program, true);
    StepProgress progress;
    progress.begin(loaded);
    LanesOfTest lanes;
    const auto index_of = [&](const auto& is) {
        const auto found = std::ranges::find_if(program.actions, is);
        if (found == program.actions.end()) throw std::logic_error("no such action");
        return static_cast<uint32_t>(found - program.actions.begin());
    };
    const auto name = [&](uint32_t index) { return program.name_of(program.actions[index]); };
    const uint32_t pass = index_of([](const Action& a) { return a.what == Do::pass; });
    const uint32_t send = index_of([](const Action& a) { return a.what == Do::send; });
    const uint32_t receive = index_of([](const Action& a) { return a.what == Do::receive; });
    const uint32_t all = index_of(
        [](const Action& a) { return is_communication(a.what) && a.lane == Lane::collective; });
    ASSERT_THAT(program.groups[program.actions[all].group].ranks, ElementsAre(0, 1));
    const auto expect = [&](bool asynchronous, const std::string& awaited) {
        const StuckReport report(0, asynchronous, progress, lanes);
        EXPECT_EQ(report.where(5), "rank 0: step 5: waits at " + name(pass) + " for " + awaited);
    };
    ASSERT_EQ(*progress.current_pass(), pass);
    for (const bool asynchronous : {false, true}) expect(asynchronous, "nothing that was started");
    // Transfers of a host, or of a transport on the host; an action in pieces once.
    progress.in_flight = {{send, 0, 1}, {all, 1, 2}, {send, 0, 3}, {receive, 2, 4}};
    for (const bool asynchronous : {false, true}) {
        expect(asynchronous, name(send) + ", " + name(all) + " (ranks 1), " + name(receive));
    }
    // A device's queues name the first transfer of each lane that has not run.
    progress.in_flight.clear();
    progress.started = {pass, send, all};
    expect(false, "nothing that was started");
    expect(true, name(send) + ", " + name(all) + " (ranks 1)");
    lanes.has_run = {send, all};
    expect(true, "the device to run " + name(pass));
    progress.settled = 1;
    expect(true, "the device to run " + name(send));
    progress.settled = 2;
    lanes.has_run = {};
    expect(true, name(all) + " (ranks 1)");
    progress.settled = 3;
    expect(true, "nothing that was started");
}

// --- abandoned steps -----------------------------------------------------------------------------

/// Rank 0 of three. The test says which peers' messages have come; a ticket is of no use after its
/// transfer has been seen to be complete.
class PeersOfTest final : public Transport {
public:
    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int size() const override { return 3; }
    [[nodiscard]] Ticket start(const Transfer& transfer) override {
        if (transfer.what == Do::send) {
            ++sent;
            return 100;
        }
        receive_[transfer.ranks[0]] = transfer.receive;
        return static_cast<Ticket>(transfer.ranks[0]);
    }
    [[nodiscard]] bool test(Ticket ticket) override {
        EXPECT_FALSE(seen_.contains(ticket)) << "of peer " << ticket;
        if (!come_.contains(ticket)) return false;
        seen_.insert(ticket);
        return true;
    }
    void cancel() noexcept override {}
    void abort(const std::string& /*reason*/) noexcept override {}

    void comes(int peer, int64_t step) {
        std::memcpy(receive_.at(peer).data(), &step, sizeof step);
        come_.insert(static_cast<Ticket>(peer));
    }
    int sent = 0;

private:
    std::map<int, std::span<std::byte>> receive_;
    std::set<Ticket> come_, seen_;
};

TEST(AbandonLine, LeavesTheStepWhenEveryPeerHasJoinedOnce) {
    PeersOfTest peers;
    AbandonLine line(peers);
    const auto look = [&] {  // more than once in the few milliseconds between two looks
        for (int i = 0; i < 4; ++i) {
            line.look(false, [] { return false; });
            std::this_thread::sleep_for(std::chrono::milliseconds(6));
        }
    };
    line.begin_step();
    look();
    EXPECT_FALSE(line.holds());
    EXPECT_EQ(peers.sent, 0);
    peers.comes(1, 1);
    look();
    EXPECT_TRUE(line.holds());
    EXPECT_FALSE(line.leaves()) << "peer 2 has not joined";
    EXPECT_EQ(peers.sent, 2) << "it asks both";
    peers.comes(2, 1);
    look();
    EXPECT_TRUE(line.leaves());
    EXPECT_EQ(peers.sent, 4) << "it tells both to leave";
}

}  // namespace
}  // namespace vocabpipe::testing
