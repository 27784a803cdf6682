// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/learnt_ranges.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<float> weights_of(const std::vector<size_t>& begins, size_t text_bytes,
                              const std::vector<LearntRange>& ranges) {
    std::vector<float> weights;
    append_learnt_weights(begins, text_bytes, ranges, weights);
    return weights;
}

TEST(LearntRanges, TokenThatReachesIntoARangeIsLearnt) {
    //             0    3    5    9         (the text has 10 bytes)
    EXPECT_THAT(weights_of({0, 3, 5, 9}, 10, {{4, 6}}), ElementsAre(0, 1, 1, 0));
    EXPECT_THAT(weights_of({0, 3, 5, 9}, 10, {{3, 5}}), ElementsAre(0, 1, 0, 0));
    EXPECT_THAT(weights_of({0, 3, 5, 9}, 10, {{9, 10}}), ElementsAre(0, 0, 0, 1));
    EXPECT_THAT(weights_of({0, 3, 5, 9}, 10, {{0, 1}, {2, 3}, {8, 9}}), ElementsAre(1, 0, 1, 0));
    EXPECT_THAT(weights_of({0, 3}, 10, {}), ElementsAre(0, 0));
    EXPECT_THAT(weights_of({}, 10, {{0, 10}}), IsEmpty());
}

TEST(LearntRanges, TokensThatBeginAtOneByteHaveOneWeight) {
    EXPECT_THAT(weights_of({0, 2, 2, 2, 5}, 6, {{3, 4}}), ElementsAre(0, 1, 1, 1, 0));
}

TEST(LearntRanges, WeightsAreThoseOfAllBytesLookedAt) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        const size_t bytes = 1 + random() % 40;
        std::vector<size_t> begins(1 + random() % 12);
        for (size_t& begin : begins) begin = random() % bytes;
        std::sort(begins.begin(), begins.end());
        std::vector<bool> learnt(bytes);
        std::vector<LearntRange> ranges;
        for (size_t at = random() % 9; at < bytes; at += 1 + random() % 9) {
            const size_t end = std::min(bytes, at + 1 + random() % 5);
            ranges.push_back({at, end});
            std::fill(learnt.begin() + static_cast<std::ptrdiff_t>(at),
                      learnt.begin() + static_cast<std::ptrdiff_t>(end), true);
            at = end;
        }
        std::vector<float> expected;
        for (const size_t begin : begins) {
            const auto next = std::upper_bound(begins.begin(), begins.end(), begin);
            const size_t end = next == begins.end() ? bytes : *next;
            bool any = false;
            for (size_t at = begin; at < end; ++at) any = any || learnt[at];
            expected.push_back(any ? 1 : 0);
        }
        ASSERT_EQ(weights_of(begins, bytes, ranges), expected) << "round " << round;
    }
}

}  // namespace
}  // namespace vocabpipe
