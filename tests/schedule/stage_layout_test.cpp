// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/stage_layout.hpp"

#include "schedules/placement.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(std::string_view text, const StageLayoutOptions& options = {}) {
    try {
        (void)parse_stage_layout(text, options);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(StageLayout, ReadsMegatronsNotation) {
    const StageLayout plain = parse_stage_layout("Ettt|tttt|tttt|tttL");
    EXPECT_THAT(plain.layers, ElementsAre(3, 4, 4, 3));
    EXPECT_FALSE(plain.sharded_input);
    EXPECT_FALSE(plain.sharded_output);
    EXPECT_EQ(parse_stage_layout("Et*3|t*4|tt(tt)|t,t,t L"), plain);
    EXPECT_EQ(parse_stage_layout("Et*3|(t*4|)*2t*3L"), plain);
    const StageLayout deep = parse_stage_layout("Et*3|(tt|)*29,t|L", {.ranks = 8, .chunks = 4});
    EXPECT_EQ(deep.layers.size(), 32U);
    EXPECT_EQ(deep.num_layers(), 62);
    EXPECT_EQ(deep.layers.back(), 0);
    EXPECT_THAT(parse_stage_layout("EL").layers, ElementsAre(0));
    EXPECT_THAT(parse_stage_layout("E||L").layers, ElementsAre(0, 0, 0));
}

TEST(StageLayout, HasALetterForShardedVocabularyLayers) {
    EXPECT_EQ(parse_stage_layout("Vtt|ttV"), (StageLayout{{2, 2}, true, true}));
    EXPECT_EQ(parse_stage_layout("Ett|ttV"), (StageLayout{{2, 2}, false, true}));
    EXPECT_EQ(parse_stage_layout("VttL"), (StageLayout{{2}, true, false}));
}

// The layouts of Megatron-LM's page on them and of Megatron-Bridge's recipes for DeepSeek-V3.
TEST(StageLayout, ReadsMegatronsLayoutsOfDeepSeekV3) {
    const StageLayout alone =
        parse_stage_layout("Et*3|(tt|)*29,m|L", {.ranks = 16, .num_layers = 61, .mtp_layers = 1});
    EXPECT_EQ(alone.mtp_layers, 1);
    EXPECT_EQ(alone.mtp_stage, 30);
    EXPECT_EQ(alone.layers.size(), 32U);
    EXPECT_EQ(alone.layers[30], 0);
    const StageLayout with_loss =
        parse_stage_layout("Et*3|(tt|)*29|mL", {.ranks = 8, .num_layers = 61, .mtp_layers = 1});
    EXPECT_EQ(with_loss.mtp_stage, 30 + 1);
    const StageLayout two = parse_stage_layout("Vtt|tm*2V", {.mtp_layers = 2});
    EXPECT_EQ(two.mtp_stage, 1);
    EXPECT_THAT(two.layers, ElementsAre(2, 1));
    EXPECT_EQ(parse_stage_layout("Ett|ttL", {.mtp_layers = 0}).mtp_stage, -1);
}

TEST(StageLayout, RefusesDepthsWhereMegatronRefusesThem) {
    EXPECT_EQ(refusal("Et|mtL"),
              "layout \"Et|mtL\": position 5: t comes after m; put all t before it");
    EXPECT_THAT(refusal("Et|m|tL"), HasSubstr("position 6: t comes after m"));
    EXPECT_EQ(refusal("Et|m|mL"),
              "layout \"Et|m|mL\": position 6: m is in two stages; put all m into one");
    EXPECT_EQ(refusal("Ett|m||L", {.ranks = 2}),
              "layout \"Ett|m||L\": position 5: m is in stage 1, not in the last one of its rank; "
              "put it into one of the last 2 stages");
    EXPECT_EQ(refusal("Ett||m|L", {.ranks = 2}),
              "layout \"Ett||m|L\": position 6: m is on the first rank; put it into a later stage");
    EXPECT_THAT(refusal("Etm|L", {.ranks = 2}), HasSubstr("position 3: m is on the first rank"));
    EXPECT_EQ(refusal("EtmL", {.ranks = 1}), "accepted");
    EXPECT_EQ(refusal("Ett|t|m|L", {.ranks = 4}), "accepted");
    EXPECT_THAT(refusal("Et|tLm"), HasSubstr("must end with L"));
    EXPECT_EQ(
        refusal("Et|tm*2L", {.mtp_layers = 1}),
        "layout \"Et|tm*2L\": has 2 depths of multi-token prediction (m), but the model has 1 "
        "(--mtp-num-layers)");
    EXPECT_THAT(refusal("Et|tL", {.mtp_layers = 1}),
                HasSubstr("has 0 depths of multi-token prediction (m), but the model has 1"));
}

TEST(StageLayout, NamesPositionAndRemedyOfEveryError) {
    EXPECT_EQ(refusal("tt|tL"),
              "layout \"tt|tL\": must start with E, the embedding, or V, the embedding sharded "
              "over all ranks");
    EXPECT_EQ(refusal(""),
              "layout \"\": must start with E, the embedding, or V, the embedding sharded over all "
              "ranks");
    EXPECT_THAT(refusal("Et|t"), HasSubstr("must end with L, the output layer and loss, or V"));
    EXPECT_THAT(refusal("V"), HasSubstr("must end with L"));
    EXPECT_EQ(refusal("Et|Et|L"),
              "layout \"Et|Et|L\": position 4: E may only be the first letter of the first stage");
    EXPECT_THAT(refusal("E*2t|L"), HasSubstr("position 1: E may only be the first letter"));
    EXPECT_THAT(refusal("EtL|tL"), HasSubstr("position 3: L may only be the last letter"));
    EXPECT_THAT(refusal("Et|V|tL"), HasSubstr("position 4: V may only be"));
    EXPECT_EQ(refusal("Ex|L"),
              "layout \"Ex|L\": position 2: 'x' is not valid; use E t m L V | ( ) * and digits");
    EXPECT_THAT(refusal("E)L"), HasSubstr("position 2: ')' is not valid"));
    EXPECT_THAT(refusal("E3L"), HasSubstr("position 2: '3' is not valid"));
    EXPECT_THAT(refusal("E(tL"), HasSubstr("position 2: ( is never closed"));
    EXPECT_THAT(refusal("E((t)*2)*2L"), HasSubstr("position 3: parentheses cannot be nested"));
    EXPECT_THAT(refusal("E()*2L"), HasSubstr("position 2: nothing between ( and )"));
    EXPECT_THAT(refusal("Et*L"), HasSubstr("position 3: * must be followed by a number"));
    EXPECT_THAT(refusal("Et*0L"), HasSubstr("position 3: repeats 0 times"));
    EXPECT_THAT(refusal("Et*99999999999999999999L"), HasSubstr("repeats to more than 1048576"));
    EXPECT_THAT(refusal("E(t*1000000)*1000000L"), HasSubstr("repeats to more than 1048576"));
    EXPECT_THAT(refusal("E|*70000L"), HasSubstr("more than 65535 stages"));
}

TEST(StageLayout, MustHaveTheVocabularyLayersOfItsMode) {
    EXPECT_EQ(refusal("Vt|tV", {.vocab_mode = VocabMode::two_barriers}), "accepted");
    EXPECT_EQ(refusal("Et|tL", {.vocab_mode = VocabMode::redistributed}), "accepted");
    EXPECT_EQ(refusal("Et|tV"), "accepted");
    EXPECT_EQ(refusal("Et|tV", {.vocab_mode = VocabMode::one_barrier}),
              "layout \"Et|tV\": shards only one of embedding and output layer; use V for both, or "
              "E and L");
    EXPECT_EQ(refusal("Et|tL", {.vocab_mode = VocabMode::interlaced}),
              "layout \"Et|tL\": does not match vocabulary mode interlaced; use V for sharded "
              "layers, or another mode");
    EXPECT_THAT(refusal("Vt|tV", {.vocab_mode = VocabMode::none}),
                HasSubstr("use E and L for whole layers, or another mode"));
}

TEST(StageLayout, MustFitRanksChunksAndModel) {
    EXPECT_THAT(
        refusal("Et|t|tL", {.ranks = 2}),
        HasSubstr("has 3 stages, but the number must be a multiple of 2, the number of ranks"));
    EXPECT_THAT(refusal("Et|t|t|tL", {.ranks = 2, .chunks = 1}),
                HasSubstr("has 4 stages, expected 2: 2 ranks with 1 each"));
    EXPECT_THAT(refusal("Et|tL", {.num_layers = 3}),
                HasSubstr("has 2 transformer layers (t), but the model has 3"));
    EXPECT_EQ(refusal("Et|t|t|tL", {.ranks = 2, .chunks = 2, .num_layers = 4}), "accepted");
}

TEST(StageLayout, PrintsWhatItReads) {
    EXPECT_EQ(print_stage_layout(parse_stage_layout("Ettt|tttt|tttt|tttt|tttL")),
              "Ettt|(t*4|)*3tttL");
    EXPECT_EQ(print_stage_layout(parse_stage_layout("Vt*8V")), "Vt*8V");
    std::mt19937 random(3);
    for (int i = 0; i < 2000; ++i) {
        StageLayout layout{{}, random() % 2 == 0, random() % 2 == 0};
        for (auto s = random() % 9; s < 9; ++s) {
            layout.layers.push_back(static_cast<int>(random() % 3 * (random() % 4)));
        }
        layout.mtp_layers = static_cast<int>(random() % 3);
        if (layout.mtp_layers > 0) layout.mtp_stage = static_cast<int>(layout.layers.size()) - 1;
        const std::string text = print_stage_layout(layout);
        ASSERT_EQ(parse_stage_layout(text), layout) << text;
    }
}

struct Balance {
    double busiest = 0, longest = 0;
    friend bool operator==(const Balance&, const Balance&) = default;
};

Balance balance_of(const std::vector<int>& layers, const std::vector<int>& rank_of_stage,
                   const LayerCosts& costs, VocabMode mode) {
    std::vector<double> stage;
    for (const int count : layers) stage.push_back(count * costs.layer);
    if (mode == VocabMode::none || mode == VocabMode::redistributed) {
        stage.front() += costs.embedding;
        stage.back() += costs.output_layer;
    }
    stage.back() += costs.mtp_layers;
    std::vector<double> rank(stage.size(), 0);
    Balance result;
    for (size_t s = 0; s < stage.size(); ++s) {
        rank[static_cast<size_t>(rank_of_stage[s])] += stage[s];
        result.longest = std::max(result.longest, stage[s]);
    }
    result.busiest = *std::max_element(rank.begin(), rank.end());
    return result;
}

/// The best of all ways to spread the layers.
Balance best_balance(int layers, const std::vector<int>& rank_of_stage, const LayerCosts& costs,
                     VocabMode mode) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    Balance best{kInfinity, kInfinity};
    std::vector<int> counts(rank_of_stage.size(), 0);
    const std::function<void(size_t, int)> spread = [&](size_t stage, int left) {
        if (stage + 1 == counts.size()) {
            counts[stage] = left;
            const Balance b = balance_of(counts, rank_of_stage, costs, mode);
            if (std::pair(b.busiest, b.longest) < std::pair(best.busiest, best.longest)) best = b;
            return;
        }
        for (counts[stage] = 0; counts[stage] <= left; ++counts[stage]) {
            spread(stage + 1, left - counts[stage]);
        }
    };
    spread(0, layers);
    return best;
}

TEST(BalancedLayers, AreTheBestOfAllPartitions) {
    std::mt19937 random(11);
    for (int i = 0; i < 400; ++i) {
        std::vector<int> rank_of_stage;
        const auto stages = 1 + random() % 5;
        for (size_t s = 0; s < stages; ++s) {
            rank_of_stage.push_back(static_cast<int>(random() % stages));
        }
        const int layers = static_cast<int>(random() % 9);
        // Multiples of 1/4 add up without rounding.
        const auto quarters = [&](unsigned below) {
            return 0.25 * static_cast<double>(random() % below);
        };
        const LayerCosts costs{.layer = 0.25 + quarters(6),
                               .embedding = quarters(12),
                               .output_layer = quarters(40),
                               .mtp_layers = quarters(12)};
        for (const VocabMode mode : {VocabMode::redistributed, VocabMode::one_barrier}) {
            const std::vector<int> found = balanced_layers(layers, rank_of_stage, costs, mode);
            int sum = 0;
            for (const int count : found) sum += count;
            ASSERT_EQ(sum, layers);
            ASSERT_EQ(balance_of(found, rank_of_stage, costs, mode),
                      best_balance(layers, rank_of_stage, costs, mode))
                << "case " << i;
        }
    }
}

TEST(BalancedLayers, AreTheEvenSplitWhereNothingIsHeavier) {
    for (const int stages : {1, 2, 3, 4, 7}) {
        std::vector<int> straight;
        for (int s = 0; s < stages; ++s) straight.push_back(s);
        for (const int layers : {0, 1, 5, 12, 80}) {
            const LayerCosts costs{.layer = 0.1, .embedding = 3, .output_layer = 5};
            EXPECT_EQ(balanced_layers(layers, straight, costs, VocabMode::two_barriers),
                      layers_per_stage(layers, stages, VocabMode::none, 0));
        }
    }
}

TEST(BalancedLayers, MoveLayersAwayFromTheOutputLayer) {
    const LayerCosts costs{.layer = 1, .output_layer = 5};
    EXPECT_THAT(balanced_layers(27, rank_of_stage(Placement::straight, 4, 1), costs,
                                VocabMode::redistributed),
                ElementsAre(8, 8, 8, 3));
    // In a V placement the first and the last stage share rank 0.
    EXPECT_THAT(balanced_layers(27, rank_of_stage(Placement::v_shape, 4, 2), costs,
                                VocabMode::redistributed),
                ElementsAre(3, 4, 4, 4, 4, 4, 4, 0));
}

TEST(BalancedLayers, RefuseImpossibleNumbers) {
    const std::vector<int> two{0, 1};
    const auto run = [&](int layers, const std::vector<int>& ranks, const LayerCosts& costs) {
        return balanced_layers(layers, ranks, costs, VocabMode::none);
    };
    EXPECT_THROW((void)run(-1, two, {}), UsageError);
    EXPECT_THROW((void)run(4, {}, {}), UsageError);
    EXPECT_THROW((void)run(4, two, {.layer = 0}), UsageError);
    EXPECT_THROW((void)run(4, two, {.output_layer = -1}), UsageError);
    EXPECT_THROW((void)run(4, two, {.mtp_layers = -1}), UsageError);
    EXPECT_THROW((void)run(4, two, {.embedding = std::numeric_limits<double>::quiet_NaN()}),
                 UsageError);
}

TEST(LayersWithEnds, GiveTheEndsTheirOwnNumberAndTheRestEvenlyToTheOthers) {
    const std::vector<int> straight{0, 1, 2, 3};
    const std::vector<int> interleaved{0, 1, 2, 0, 1, 2};
    EXPECT_THAT(layers_with_ends(16, straight, {.first = 2, .last = 3}), ElementsAre(2, 6, 5, 3));
    EXPECT_THAT(layers_with_ends(16, straight, {.first = 1}), ElementsAre(1, 5, 5, 5));
    EXPECT_THAT(layers_with_ends(16, straight, {.last = 0}), ElementsAre(6, 5, 5, 0));
    EXPECT_THAT(layers_with_ends(12, interleaved, {.first = 3, .last = 2}),
                ElementsAre(2, 4, 1, 1, 3, 1));
    EXPECT_THAT(layers_with_ends(5, std::vector<int>{0, 1}, {.first = 3, .last = 2}),
                ElementsAre(3, 2));
}

TEST(LayersWithEnds, RefuseWhatDoesNotFit) {
    const auto message = [](int layers, const std::vector<int>& ranks, const EndLayers& ends) {
        try {
            (void)layers_with_ends(layers, ranks, ends);
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_THAT(message(4, {0, 1, 1, 0}, {.first = 1}), HasSubstr("on one rank"));
    EXPECT_THAT(message(4, {0, 1, 2}, {.first = 3, .last = 3}), HasSubstr("2 too many"));
    EXPECT_THAT(message(9, {0, 1}, {.first = 3, .last = 3}), HasSubstr("3 are left over"));
}

}  // namespace
}  // namespace vocabpipe::testing
