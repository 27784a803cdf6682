// SPDX-License-Identifier: Apache-2.0
// Pairs on two lanes: the same bits as one pass after the other; each pass computes while the other
// waits for its team, which is shown without a clock, by tiles that are held back until the other
// pass has gone on; and a tile that never comes ends both with one error.
#include "src/runtime/device/forwarding_device.hpp"
#include "src/runtime/lanes.hpp"
#include "src/runtime/transport/forwarding_transport.hpp"
#include "tests/support/stalling_device.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/expert_setup.hpp"
#include "tests/train/tensor_setup.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// More microbatches than are on their way, so that there are pairs. Modes that share the
/// vocabulary take those of dualpipe-v apart.
constexpr int kMicrobatches = 6;

TrainingSetup pairs_of_tensor_ranks(VocabMode mode = VocabMode::none) {
    TrainingSetup setup =
        tensor_setup("dualpipe-v", mode, {.pipeline = 2, .tensor = 2}, "llama", DType::fp32, 2);
    setup.microbatches = kMicrobatches;
    return setup;
}

void expect_same_bits(TrainingSetup setup) {
    setup.microbatches = kMicrobatches;
    const Training beside = train_on_threads(setup);
    setup.overlap_pairs = false;
    EXPECT_EQ(first_difference(train_on_threads(setup), beside), "");
}

TEST(OverlappedPairs, OfTensorRanksHaveTheBitsOfOnePassAfterTheOther) {
    for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed}) {
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
            SCOPED_TRACE(to_string(mode));
            TrainingSetup setup = pairs_of_tensor_ranks(mode);
            setup.recompute = recompute;
            setup.tensor_pieces = 2;
            expect_same_bits(setup);
        }
    }
}

TEST(OverlappedPairs, OfExpertRanksHaveTheBitsOfOnePassAfterTheOther) {
    for (const char* family : {"mixtral", "dots1", "qwen2_moe"}) {
        for (const Mesh& mesh : {Mesh{.pipeline = 2, .data = 2, .expert = 2},
                                 Mesh{.pipeline = 2, .tensor = 2, .expert = 2}}) {
            SCOPED_TRACE(family);
            expect_same_bits(
                expert_setup("dualpipe-v", VocabMode::none, mesh, family, DType::bf16, 2));
        }
    }
    TrainingSetup waves =
        expert_setup("dualpipe-v", VocabMode::redistributed,
                     {.pipeline = 2, .data = 2, .expert = 2}, "qwen3_moe", DType::fp32, 2);
    waves.moe_row_factor = 0.4;
    waves.pieces = 2;  // a pass that waits for rows of a boundary hands over, too
    expect_same_bits(waves);
}

TEST(OverlappedPairs, OfContextRanksHaveTheBitsOfOnePassAfterTheOther) {
    for (const ContextForm form : {ContextForm::allgather, ContextForm::a2a}) {
        SCOPED_TRACE(to_string(form));
        TrainingSetup setup =
            context_setup("dualpipe-v", VocabMode::none, {.pipeline = 2, .tensor = 2, .context = 2},
                          "llama", DType::fp32, 2);
        setup.context_exchange = {.form = form, .panels = 2};
        expect_same_bits(setup);
    }
}

/// Every forward and backward of two microbatches that stand side by side.
TEST(OverlappedPairs, OfOtherFamiliesHaveTheBitsOfOnePassAfterTheOther) {
    for (const VocabMode mode : {VocabMode::none, VocabMode::interlaced, VocabMode::one_barrier,
                                 VocabMode::two_barriers}) {
        SCOPED_TRACE(to_string(mode));
        TrainingSetup experts = expert_setup("1f1b", mode, {.pipeline = 2, .data = 2, .expert = 2},
                                             "mixtral", DType::bf16, 2);
        experts.rule.overlap_pairs = true;
        expect_same_bits(experts);
        TrainingSetup tensor =
            tensor_setup("1f1b", mode, {.pipeline = 2, .tensor = 2}, "llama", DType::fp32, 2);
        tensor.rule.overlap_pairs = true;
        tensor.recompute = Recompute::selective;
        expect_same_bits(tensor);
    }
    TrainingSetup interleaved = tensor_setup("interleaved", VocabMode::none,
                                             {.pipeline = 2, .tensor = 2}, "llama", DType::fp32, 2);
    interleaved.rule.overlap_pairs = true;
    expect_same_bits(interleaved);
}

TEST(OverlappedPairs, WhoseStagesAreShardedHaveTheBitsOfOnePassAfterTheOther) {
    for (const int stage : {2, 3}) {
        SCOPED_TRACE(stage);
        TrainingSetup setup =
            tensor_setup("dualpipe-v", VocabMode::none, {.pipeline = 2, .data = 2, .tensor = 2},
                         "llama", DType::fp32, 2);
        setup.zero.stage = stage;
        expect_same_bits(setup);
    }
}

// Ranks sleep before actions and inside passes, and ends of messages are seen late and out of
// order, so that passes change in other places on every rank.
TEST(OverlappedPairs, HaveTheSameBitsHoweverTheirPassesChange) {
    TrainingSetup setup = pairs_of_tensor_ranks();
    setup.tensor_pieces = 2;
    const Training expected = train_on_threads(setup);
    StallCounts counts;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        setup.make_device = [&](int rank) {
            return make_stalling_device(rank,
                                        {.seed = seed,
                                         .before_action = 0.1,
                                         .in_pass = 0.05,
                                         .stall_us = 100,
                                         .late_message = 0.1,
                                         .late_us = 200,
                                         .overlooked = 0.3},
                                        &counts);
        };
        EXPECT_EQ(first_difference(expected, train_on_threads(setup)), "") << seed;
    }
    EXPECT_GT(counts.stalls, 0);
    EXPECT_GT(counts.late_messages, 0);
}

// --- tiles that are held back --------------------------------------------------------------------

/// Which tiles of a pair are not seen to arrive.
enum class Held : uint8_t {
    until_other_goes_on,  ///< those of the first until the second begins, and then those of the
                          ///< second until the first has ended
    of_second,            ///< those of the second pass, for ever
    of_both,              ///< for ever
};

/// What the passes of one rank are at.
struct Pairs {
    Held held;
    std::vector<Action> actions = {};  ///< of the rank's program
    bool first_runs = false, second_runs = false;
    int together = 0;  ///< pairs of which both ran at once

    [[nodiscard]] bool holds(bool of_second) const {
        switch (held) {
            case Held::until_other_goes_on:
                return first_runs && second_runs == of_second;
            case Held::of_second:
                return of_second;
            case Held::of_both:
                return first_runs || second_runs;
        }
        return false;
    }
};

class WatchedLanes final : public Lanes {
public:
    explicit WatchedLanes(std::shared_ptr<Pairs> pairs) : pairs_(std::move(pairs)) {}
    void load(const Program& program, ProgramId) override { pairs_->actions = program.actions; }
    void begin(Lane, uint32_t action) override {
        if (bool* const runs = of(action)) *runs = true;
        if (pairs_->first_runs && pairs_->second_runs && member(action) == 2) ++pairs_->together;
    }
    void end(Lane, uint32_t action) override {
        if (bool* const runs = of(action)) *runs = false;
    }

private:
    [[nodiscard]] int member(uint32_t action) const { return pairs_->actions[action].pair_member; }
    [[nodiscard]] bool* of(uint32_t action) const {
        switch (member(action)) {
            case 1:
                return &pairs_->first_runs;
            case 2:
                return &pairs_->second_runs;
            default:
                return nullptr;
        }
    }
    std::shared_ptr<Pairs> pairs_;
};

/// Sees the end of a receive from a tensor rank only when `pairs` lets it. Two tensor ranks are
/// neighbours, and a second pass receives on a channel that neighbours use for nothing else.
class HoldingTransport final : public ForwardingTransport {
public:
    HoldingTransport(Transport& inner, std::shared_ptr<Pairs> pairs)
        : ForwardingTransport(inner), pairs_(std::move(pairs)) {}

    [[nodiscard]] Ticket start(const Transfer& transfer) override {
        const Ticket ticket = inner().start(transfer);
        if (lane_.size() <= ticket) lane_.resize(ticket + 1);
        const bool of_team =
            transfer.what == Do::receive && transfer.ranks[0] / 2 == transfer.ranks[1] / 2;
        lane_[ticket] = !of_team                                  ? kOther
                        : transfer.channel == Channel::tensor     ? kFirst
                        : transfer.channel != Channel::collective ? kSecond
                                                                  : kOther;
        return ticket;
    }
    [[nodiscard]] bool test(Ticket ticket) override {
        const Of of = lane_[ticket];
        if (of != kOther && pairs_->holds(of == kSecond)) return false;
        return inner().test(ticket);
    }

private:
    enum Of : uint8_t { kOther, kFirst, kSecond };
    std::shared_ptr<Pairs> pairs_;
    std::vector<Of> lane_;  ///< [ticket]
};

class HoldingDevice final : public ForwardingDevice {
public:
    explicit HoldingDevice(std::shared_ptr<Pairs> pairs)
        : ForwardingDevice(make_host_device()), pairs_(std::move(pairs)) {}
    [[nodiscard]] std::unique_ptr<Lanes> open_lanes() override {
        return std::make_unique<WatchedLanes>(pairs_);
    }
    [[nodiscard]] std::unique_ptr<Transport> open_transport(Communicator& c) override {
        return std::make_unique<HoldingTransport>(c.transport(), pairs_);
    }

private:
    std::shared_ptr<Pairs> pairs_;
};

/// Trains with such devices on these ranks, and the host on all others. Returns how many pairs ran
/// at once on each rank.
std::vector<int> train_with(TrainingSetup setup, Held held, const std::vector<int>& ranks) {
    std::vector<std::shared_ptr<Pairs>> pairs;
    for (int rank = 0; rank < 4; ++rank) {
        pairs.push_back(std::make_shared<Pairs>(Pairs{.held = held}));
    }
    setup.make_device = [&](int rank) -> std::unique_ptr<Device> {
        if (std::ranges::find(ranks, rank) == ranks.end()) return make_host_device();
        return std::make_unique<HoldingDevice>(pairs[static_cast<size_t>(rank)]);
    };
    (void)train_on_threads(setup);
    std::vector<int> together;
    for (const auto& of_rank : pairs) together.push_back(of_rank->together);
    return together;
}

TEST(OverlappedPairs, GoOnWhileTheOtherPassWaits) {
    TrainingSetup setup = pairs_of_tensor_ranks();
    setup.steps = 1;
    const Schedule schedule = make_schedule("dualpipe-v", {.ranks = 2,
                                                           .microbatches = kMicrobatches,
                                                           .vocab_mode = setup.mode,
                                                           .vocab_size = kTensorVocabulary});
    std::vector<int> expected;
    for (const std::vector<Pass>& list : schedule.passes) {
        const auto pairs = std::ranges::count_if(list, &Pass::with_next);
        EXPECT_GT(pairs, 3);
        expected.insert(expected.end(), 2, static_cast<int>(pairs));
    }
    EXPECT_EQ(train_with(setup, Held::until_other_goes_on, {0, 1, 2, 3}), expected);
}

TEST(OverlappedPairs, EndWithOneErrorWhereATileNeverComes) {
    TrainingSetup setup = pairs_of_tensor_ranks();
    setup.timeout_seconds = 0.3;
    for (const Held held : {Held::of_second, Held::of_both}) {
        try {
            (void)train_with(setup, held, {1});
            FAIL() << "the run ended";
        } catch (const CommunicationError& error) {
            // The rank that gave up first says it: another one may wait for a boundary.
            EXPECT_THAT(error.what(), HasSubstr("no progress within"));
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
