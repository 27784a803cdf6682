// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/embedding_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Element j of sample i is 10 i + j.
class Counting : public EmbeddingInput {
public:
    explicit Counting(int64_t width)
        : EmbeddingInput("made-up", {.data = {}, .seq_length = 0, .samples = 100}, width) {}
    void read(int64_t first, std::span<float> to) override {
        ASSERT_EQ(std::ssize(to) % width(), 0);
        reads.emplace_back(first, std::ssize(to) / width());
        for (int64_t i = 0; i < std::ssize(to); ++i) {
            to[static_cast<size_t>(i)] =
                static_cast<float>(10 * (first + i / width()) + i % width());
        }
    }
    std::vector<std::pair<int64_t, int64_t>> reads;  ///< first sample, samples
};

/// Samples and the last elements of their rows.
std::vector<std::pair<int64_t, float>> rows_of(Counting& input, int64_t first, int64_t last) {
    std::vector<std::pair<int64_t, float>> rows;
    for_each_embedding(input, first, last, [&](int64_t sample, const float* row) {
        EXPECT_EQ(row[0], static_cast<float>(10 * sample));
        rows.emplace_back(sample, row[input.width() - 1]);
    });
    return rows;
}

TEST(ForEachEmbedding, HasTheRowOfEverySampleInOrder) {
    Counting input(3);
    EXPECT_THAT(rows_of(input, 5, 8), ElementsAre(Pair(5, 52), Pair(6, 62), Pair(7, 72)));
    EXPECT_THAT(input.reads, ElementsAre(Pair(5, 3)));
    EXPECT_THAT(rows_of(input, 8, 8), IsEmpty());
    EXPECT_EQ(input.reads.size(), 1U);
}

TEST(ForEachEmbedding, ReadsAsManyWholeRowsAsAMebibyteHas) {
    const auto reads = [](int64_t width) {
        Counting input(width);
        EXPECT_EQ(rows_of(input, 3, 8).size(), 5U);
        return input.reads;
    };
    constexpr int64_t kMost = (1 << 20) / 4;
    EXPECT_THAT(reads(kMost / 4), ElementsAre(Pair(3, 4), Pair(7, 1)));
    EXPECT_THAT(reads(kMost / 2), ElementsAre(Pair(3, 2), Pair(5, 2), Pair(7, 1)));
    for (const int64_t width : {kMost / 2 + 1, kMost, kMost + 1}) {
        EXPECT_THAT(reads(width),
                    ElementsAre(Pair(3, 1), Pair(4, 1), Pair(5, 1), Pair(6, 1), Pair(7, 1)))
            << width;
    }
}

}  // namespace
}  // namespace vocabpipe
