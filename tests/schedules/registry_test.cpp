// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/notation.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::ThrowsMessage;

std::string refusal(std::string_view name, const ScheduleOptions& options) {
    try {
        (void)make_schedule(name, options);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "accepted";
}

ScheduleOptions usual() {
    return {.ranks = 2, .microbatches = 4, .vocab_size = 100};
}

TEST(Registry, ListsTheFamilies) {
    std::vector<std::string_view> names;
    for (const Generator& generator : generators()) names.push_back(generator.name);
    EXPECT_THAT(names, IsSupersetOf({"1f1b", "gpipe", "eager-1f1b", "interleaved",
                                     "group-interleaved", "looped-bfs", "zb", "zb-h1", "zb-h2",
                                     "interleaved-zb", "zb-v", "dualpipe-v"}));
    EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
}

TEST(Registry, NamesTheKnownFamiliesForAnUnknownOne) {
    EXPECT_THAT(refusal("1b1f", usual()),
                AllOf(HasSubstr("1b1f"), HasSubstr("1f1b"), HasSubstr("gpipe")));
}

TEST(Registry, RefusesSizesThatFillTheMemoryAndSearchesThatDoNotEnd) {
    EXPECT_EQ(refusal("1f1b", {.ranks = 1000, .microbatches = 100'000, .vocab_size = 1}),
              "ScheduleOptions::microbatches 100000: with 1000 stages, a step has up to 700000000 "
              "passes, but at "
              "most 20000000 are supported; use at most 2857");
    ScheduleOptions options = usual();
    options.rule.search_moves = int64_t{1} << 40;
    EXPECT_THAT(refusal("1f1b", options),
                AllOf(HasSubstr("RuleOptions::search_moves 1099511627776: with "),
                      HasSubstr(" passes, the search would take hours; use at most 100000000")));
    options = {
        .ranks = 16, .microbatches = 256, .vocab_size = 1, .rule = {.search_moves = 100'000'000}};
    EXPECT_EQ(refusal("1f1b", options),
              "RuleOptions::search_moves 100000000: with 9216 passes, the search would take hours; "
              "use at "
              "most 29826161");
    options.rule.search_moves = 1;
    EXPECT_EQ(refusal("1f1b", options), "accepted");
}

// The search reports before its first move.
TEST(Registry, AcceptsTheMostMovesThatARefusalNames) {
    struct Began {};
    ScheduleOptions options{
        .ranks = 16, .microbatches = 256, .vocab_size = 1, .rule = {.search_moves = 29'826'161}};
    options.search_progress = [](int64_t) { throw Began(); };
    EXPECT_THROW((void)make_schedule("1f1b", options), Began);
    ++options.rule.search_moves;
    EXPECT_THAT(refusal("1f1b", options), HasSubstr("use at most 29826161"));
}

TEST(Registry, SaysWhatToUseInPlaceOfTwoCopies) {
    EXPECT_EQ(refusal("dualpipe", usual()),
              "OrderSource::name dualpipe: its ranks hold two copies of the model's stages, but a "
              "stage must be "
              "on one rank; use dualpipe-v, which has the same overlapped pairs with one copy");
}

TEST(Registry, NamesOptionValueAndLimitOfImpossibleOptions) {
    const auto refused = [](auto change) {
        ScheduleOptions options = usual();
        change(options);
        return refusal("1f1b", options);
    };
    EXPECT_EQ(refused([](auto& o) { o.ranks = 0; }),
              "ScheduleOptions::ranks 0: must be at least 1");
    EXPECT_EQ(refused([](auto& o) { o.ranks = 65536; }),
              "ScheduleOptions::ranks 65536: must be at most 65535");
    EXPECT_EQ(refused([](auto& o) { o.microbatches = -3; }),
              "ScheduleOptions::microbatches -3: must be at least 1");
    EXPECT_EQ(refused([](auto& o) { o.microbatches = std::numeric_limits<int>::max(); }),
              "ScheduleOptions::microbatches 2147483647: must be at most 16777216");
    EXPECT_EQ(refused([](auto& o) { o.vocab_size = 0; }),
              "ScheduleOptions::vocab_size 0: must be at least 1");
    EXPECT_EQ(refused([](auto& o) { o.costs.stage[0][0] = -1; }),
              "cost of F of stage 0 is -1: must be from 0 to 2^40");
    EXPECT_EQ(refused([](auto& o) { o.costs.stage.resize(3); }),
              "costs are set for 3 stages, but the schedule has 2");
    EXPECT_EQ(refused([](auto& o) { o.costs.rank.clear(); }),
              "costs are set for 0 ranks, but the schedule has 2");
    EXPECT_EQ(refused([](auto& o) { o.rule.broadcast_margin = -1; }),
              "RuleOptions::broadcast_margin -1: must be at least 0");
}

TEST(Registry, RefusesOptionsThatTheFamilyWouldIgnore) {
    ScheduleOptions options = usual();
    options.rule.group_size = 3;
    std::string readers;
    for (const Generator& family : generators()) {
        if (family.group_size) readers += (readers.empty() ? "" : ", ") + std::string(family.name);
    }
    EXPECT_EQ(refusal("1f1b", options),
              "RuleOptions::group_size 3: 1f1b does not use it; only " + readers + " do");
    EXPECT_THAT(readers,
                AllOf(HasSubstr("interleaved, group-interleaved"), HasSubstr("interleaved-zb")));
    EXPECT_EQ(refusal("interleaved", options), "accepted");
    options = usual();
    options.rule.overlap_pairs = true;
    EXPECT_EQ(refusal("gpipe", options),
              "RuleOptions::overlap_pairs: gpipe does not use it; only 1f1b, eager-1f1b, "
              "interleaved, dualpipe-v do");
    EXPECT_EQ(refusal("interleaved", options), "accepted");
    options.vocab_mode = VocabMode::one_barrier;
    EXPECT_EQ(refusal("interleaved", options),
              "RuleOptions::overlap_pairs: between the forwards and backwards of interleaved come "
              "the vocabulary passes of one_barrier; use 1f1b, or vocabulary mode none or "
              "redistributed");
    EXPECT_EQ(refusal("1f1b", options), "accepted");
    options = usual();
    options.rule.memory_limit = 4;
    EXPECT_THAT(refusal("zb-h1", options),
                HasSubstr("RuleOptions::memory_limit 4: zb-h1 does not use it"));
    EXPECT_EQ(refusal("zb", options), "accepted");
    options = usual();
    options.rule.warm_up_depth = 2;
    EXPECT_THAT(refusal("gpipe", options),
                HasSubstr("RuleOptions::warm_up_depth 2: gpipe does not use"));
    EXPECT_EQ(refusal("1f1b", options), "accepted");
}

TEST(Registry, AcceptsTheLargestCosts) {
    ScheduleOptions options = usual();
    options.vocab_mode = VocabMode::one_barrier;
    const int64_t largest = int64_t{1} << 40;
    options.costs = PassCosts::uniform(largest, largest, largest);
    options.rule.broadcast_margin = std::numeric_limits<int64_t>::max();
    EXPECT_EQ(refusal("1f1b", options), "accepted");
}

TEST(Registry, SetsPlacementShardMapsAndBarriersOfTheMode) {
    const auto made = [](VocabMode mode) {
        return make_schedule("gpipe",
                             {.ranks = 3, .microbatches = 2, .vocab_mode = mode, .vocab_size = 10});
    };
    for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed}) {
        const Schedule whole = made(mode);
        EXPECT_THAT(whole.rank_of_stage, ElementsAre(0, 1, 2));
        EXPECT_THAT(whole.input.first_row, ElementsAre(0, 10, 10, 10));
        EXPECT_THAT(whole.output.first_row, ElementsAre(0, 0, 0, 10));
        EXPECT_EQ(whole.barriers, Barriers::in_line);
    }
    const std::pair<VocabMode, Barriers> sharded[] = {{VocabMode::interlaced, Barriers::in_line},
                                                      {VocabMode::one_barrier, Barriers::one},
                                                      {VocabMode::two_barriers, Barriers::two}};
    for (const auto& [mode, barriers] : sharded) {
        EXPECT_THAT(made(mode).input.first_row, ElementsAre(0, 3, 6, 10));
        EXPECT_THAT(made(mode).output.first_row, ElementsAre(0, 3, 6, 10));
        EXPECT_EQ(made(mode).barriers, barriers);
    }
}

// The 8-GPU runs of arXiv 2411.05288, q = 6V / (72h + 12s).
TEST(LayersPerStage, MovesLayersAwayFromTheOutputLayerAsPublished) {
    const auto last_stage = [](double vocab_size) {
        const double q = 6 * vocab_size / (72 * 3072 + 12 * 2048);
        return layers_per_stage(32, 8, VocabMode::redistributed, q).back();
    };
    EXPECT_EQ(last_stage(32000), 4);
    EXPECT_EQ(last_stage(64000), 3);
    EXPECT_EQ(last_stage(128000), 2);
    EXPECT_EQ(last_stage(256000), 0);
    EXPECT_THAT(layers_per_stage(32, 8, VocabMode::redistributed, 100),
                ElementsAre(4, 4, 4, 5, 5, 5, 5, 0));
}

TEST(LayersPerStage, SplitsEvenlyInEveryOtherMode) {
    for (const VocabMode mode : {VocabMode::none, VocabMode::interlaced, VocabMode::one_barrier,
                                 VocabMode::two_barriers}) {
        EXPECT_THAT(layers_per_stage(10, 4, mode, 5), ElementsAre(3, 3, 2, 2));
        EXPECT_THAT(layers_per_stage(2, 3, mode, 5), ElementsAre(1, 1, 0));
    }
    EXPECT_THAT(layers_per_stage(7, 1, VocabMode::redistributed, 5), ElementsAre(7));
}

// (L + q) / p - q is a whole number here, but not in floating point.
TEST(LayersPerStage, DoesNotRoundUpWhatIsWhole) {
    EXPECT_EQ(layers_per_stage(32, 4, VocabMode::redistributed, 4.0 / 3 * 0.1 * 10).back(), 7);
    for (int p = 2; p <= 8; ++p) {
        const double q = static_cast<double>(p) / (p - 1);  // then (L + q)/p - q = L/p - 1
        EXPECT_EQ(layers_per_stage(4 * p, p, VocabMode::redistributed, q).back(), 3) << p;
    }
}

TEST(LayersPerStage, RefusesWhatIsNoNumberOfLayers) {
    EXPECT_THAT([] { (void)layers_per_stage(-1, 2, VocabMode::none, 0); },
                ThrowsMessage<UsageError>("ModelConfig::num_layers -1: must be at least 0"));
    EXPECT_THAT([] { (void)layers_per_stage(4, 0, VocabMode::none, 0); },
                ThrowsMessage<UsageError>("a schedule of 0 stages: must have at least 1"));
    EXPECT_THROW((void)layers_per_stage(4, 2, VocabMode::redistributed, -1), UsageError);
    EXPECT_THROW((void)layers_per_stage(4, 2, VocabMode::redistributed,
                                        std::numeric_limits<double>::infinity()),
                 UsageError);
}

TEST(Registry, SaysThePlacementWithoutMakingThePasses) {
    for (const Generator& family : generators()) {
        for (const VocabMode mode : kEveryMode) {
            ScheduleOptions options = usual();
            options.ranks = 4;
            options.vocab_mode = mode;
            const Schedule made = make_schedule(family.name, options);
            const Schedule placed = placement_of(family.name, options);
            EXPECT_EQ(placed.stages, made.stages) << family.name;
            EXPECT_EQ(placed.microbatches, made.microbatches);
            EXPECT_EQ(placed.rank_of_stage, made.rank_of_stage) << family.name;
            EXPECT_EQ(placed.input, made.input);
            EXPECT_EQ(placed.output, made.output);
            EXPECT_EQ(placed.barriers, made.barriers);
        }
    }
}

TEST(LayersPerStage, RedistributedOnAVMovesLayersOffTheRankWithTheOutputLayer) {
    // Rank 0 has the first and the last stage, and an output layer of three layers.
    const std::vector<int> v{0, 1, 2, 2, 1, 0};
    const std::vector<int> layers =
        layers_per_stage(12, v, VocabMode::redistributed, {.output_layer = 3});
    EXPECT_EQ(layers[0] + layers[5], 2);
    EXPECT_EQ(layers[1] + layers[4], 5);
    EXPECT_EQ(layers[2] + layers[3], 5);
    // One stage per rank: the paper's rule.
    const std::vector<int> straight{0, 1, 2};
    EXPECT_EQ(layers_per_stage(12, straight, VocabMode::redistributed, {.output_layer = 3}),
              layers_per_stage(12, 3, VocabMode::redistributed, 3));
    EXPECT_EQ(layers_per_stage(12, v, VocabMode::none, {.output_layer = 3}),
              layers_per_stage(12, 6, VocabMode::none, 3));
}

TEST(LayersPerStage, CountWhatPredictsSeveralTokensOnTheLastStageInEveryMode) {
    const std::vector<int> straight{0, 1, 2, 3};
    for (const VocabMode mode : kEveryMode) {
        EXPECT_THAT(layers_per_stage(14, straight, mode, {.mtp_layers = 2}),
                    ElementsAre(4, 4, 4, 2));
        EXPECT_THAT(layers_per_stage(6, straight, mode, {.mtp_layers = 9}),
                    ElementsAre(2, 2, 2, 0));
    }
    // Rank 0 has the first and the last stage.
    const std::vector<int> v{0, 1, 1, 0};
    EXPECT_THAT(layers_per_stage(6, v, VocabMode::one_barrier, {.mtp_layers = 2}),
                ElementsAre(2, 2, 2, 0));
    // Only redistributed ones count, of whole output layers.
    EXPECT_THAT(
        layers_per_stage(6, straight, VocabMode::none, {.output_layer = 2, .mtp_layers = 2}),
        ElementsAre(2, 2, 2, 0));
    EXPECT_THAT(layers_per_stage(11, straight, VocabMode::redistributed,
                                 {.output_layer = 2, .mtp_layers = 2}),
                ElementsAre(4, 4, 3, 0));
    EXPECT_THROW((void)layers_per_stage(6, v, VocabMode::none, {.mtp_layers = -1}), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
