// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "src/train/data/blend_order.hpp"
#include "src/train/data/data_paths.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Place = BlendOrder::Place;

std::vector<Place> first_places(const BlendOrder& order, int64_t count) {
    std::vector<Place> places;
    for (int64_t i = 0; i < count; ++i) places.push_back(order(i));
    return places;
}

/// Megatron's rule in other words: the errors of all sets first, then the largest of them.
std::vector<Place> megatron_places(const std::vector<double>& weights, int64_t count) {
    std::vector<Place> places;
    std::map<size_t, int64_t> given;
    for (int64_t i = 0; i < count; ++i) {
        std::vector<double> errors;
        for (size_t set = 0; set < weights.size(); ++set) {
            const double share = weights[set] * static_cast<double>(i == 0 ? 1 : i);
            errors.push_back(share - static_cast<double>(given[set]));
        }
        const auto set =
            static_cast<size_t>(std::max_element(errors.begin(), errors.end()) - errors.begin());
        places.push_back({set, given[set]++});
    }
    return places;
}

std::vector<double> normalised(std::vector<double> weights) {
    double sum = 0;
    for (const double w : weights) sum += w;
    for (double& w : weights) w /= sum;
    return weights;
}

TEST(BlendOrder, TakesFromTheSetThatIsFurthestBehind) {
    const BlendOrder order({0.5, 0.25, 0.25});
    // Shares of 1, 1, 2, 3, 4 samples, less what was given: worked by hand.
    EXPECT_EQ(first_places(order, 5), (std::vector<Place>{{0, 0}, {1, 0}, {2, 0}, {0, 1}, {0, 2}}));
}

TEST(BlendOrder, IsMegatronsForRandomWeights) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> weight(0.01, 3);
    for (int round = 0; round < 20; ++round) {
        std::vector<double> weights(1 + static_cast<size_t>(round % 7));
        for (double& w : weights) w = weight(random);
        weights = normalised(weights);
        EXPECT_EQ(first_places(BlendOrder(weights), 3000), megatron_places(weights, 3000));
    }
}

TEST(BlendOrder, KeepsEverySetWithinTheNumberOfSetsOfItsShare) {
    const std::vector<double> weights = normalised({5, 3, 1, 0.5, 0.01});
    const BlendOrder order(weights);
    std::vector<double> given(weights.size());
    for (int64_t i = 0; i < 20000; ++i) {
        const Place place = order(i);
        ASSERT_EQ(place.sample, static_cast<int64_t>(given[place.dataset]));
        given[place.dataset] += 1;
        for (size_t set = 0; set < weights.size(); ++set) {
            ASSERT_LT(std::abs(given[set] - weights[set] * static_cast<double>(i + 1)),
                      static_cast<double>(weights.size()))
                << "set " << set << " after " << i + 1;
        }
    }
}

TEST(BlendOrder, GoesBackFarAndNear) {
    const std::vector<double> weights = normalised({2, 1, 4});
    const BlendOrder order(weights);
    const std::vector<Place> places = first_places(BlendOrder(weights), 300'000);
    for (const int64_t index :
         {299'999, 299'990, 200'000, 250'000, 70'000, 69'999, 0, 140'000, 1}) {
        EXPECT_EQ(order(index), places[static_cast<size_t>(index)]) << index;
    }
}

TEST(BlendOrder, GivesTheSamePlaceInWhateverOrderItIsAsked) {
    const std::vector<double> weights = normalised({2, 1, 4});
    const std::vector<Place> expected = megatron_places(weights, 500);
    const BlendOrder order(weights);
    for (const size_t i : {499U, 0U, 1U, 100U, 101U, 105U, 99U, 3U, 498U}) {
        EXPECT_EQ(order(static_cast<int64_t>(i)), expected[i]) << i;
    }
    EXPECT_THROW((void)order(-1), std::out_of_range);
}

TEST(BlendOrder, ResumesAtEveryPosition) {
    const std::vector<double> weights = normalised({1, 1.5, 0.2});
    const std::vector<Place> expected = megatron_places(weights, 200);
    for (size_t begin = 0; begin < expected.size(); ++begin) {
        const BlendOrder resumed(weights);
        for (size_t i = begin; i < expected.size() && i < begin + 5; ++i) {
            ASSERT_EQ(resumed(static_cast<int64_t>(i)), expected[i]) << begin;
        }
    }
}

TEST(DataPaths, AreOneNameOrPairsOfWeightAndName) {
    const auto one = parse_data_paths("--data-path", {"books"});
    ASSERT_EQ(one.size(), 1U);
    EXPECT_EQ(one[0].path, "books");
    EXPECT_EQ(one[0].weight, 1);
    const auto three = parse_data_paths("--data-path", {"3", "a", "1e0", "b", ".5", "a"});
    ASSERT_EQ(three.size(), 3U);
    EXPECT_EQ(three[2].path, "a");
    EXPECT_EQ(three[0].weight, 3 / 4.5);
    EXPECT_EQ(three[1].weight, 1 / 4.5);
    EXPECT_EQ(three[2].weight, 0.5 / 4.5);
}

TEST(DataPaths, RefuseAnOddNumberOfWordsAndWhatIsNoWeight) {
    const auto refusal = [](const std::vector<std::string>& words) {
        return testing::message_of<UsageError>(
            [&] { (void)parse_data_paths("--valid-data-path", words); });
    };
    EXPECT_THAT(refusal({"1", "a", "b"}), AllOf(HasSubstr("--valid-data-path: has 3 words"),
                                                HasSubstr("pairs of a weight and a name")));
    for (const char* weight : {"0", "-1", "inf", "nan", "1x", "", "a", "1e999", "0x1"}) {
        EXPECT_THAT(refusal({"1", "a", weight, "books"}),
                    HasSubstr("the weight '" + std::string(weight) + "' of books"));
    }
    EXPECT_THAT(refusal({"1e308", "a", "1e308", "b"}), HasSubstr("too large"));
    EXPECT_THAT(refusal({"1", ""}), HasSubstr("a name is empty"));
}

}  // namespace
}  // namespace vocabpipe
