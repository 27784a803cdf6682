// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/check_tokens.hpp"

#include <gtest/gtest.h>

#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/data/vector_source.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::VectorSource;

TEST(CheckTokens, ReturnsTheRangeOfGoodTokens) {
    const VectorSource source({3, 1, 9});
    const TokenRange range = check_tokens(source, 10);
    EXPECT_EQ(range.min, 1);
    EXPECT_EQ(range.max, 9);
    EXPECT_EQ(check_tokens(VectorSource({}), 1).max, -1);
}

TEST(CheckTokens, NamesFilePositionValueLimitAndRemedy) {
    const testing::TempFolder folder;
    testing::write_file(folder / "a.bin", testing::bytes_of<uint16_t>({1, 2, 3}));
    testing::write_file(folder / "b.bin", testing::bytes_of<uint16_t>({4, 50, 60, 5}));
    const auto source = open_tokens(folder / "*.bin", DataFormat::raw_u16);
    const auto message = testing::message_of<InputFileError>([&] { check_tokens(*source, 50); });
    EXPECT_THAT(message,
                AllOf(HasSubstr("b.bin: token 1 is 50, but --vocab-size 50 allows only 0 to "
                                "49"),
                      HasSubstr("--vocab-size 61 or more")));
}

TEST(CheckTokens, FindsABadTokenInAnyBlock) {
    for (const int64_t at : {0, 32767, 32768, 70000, 99999}) {
        std::vector<int32_t> tokens(100000, 7);
        tokens[static_cast<size_t>(at)] = 8;
        const VectorSource source(tokens);
        EXPECT_THAT(testing::message_of<InputFileError>([&] { check_tokens(source, 8); }),
                    HasSubstr("token " + std::to_string(at) + " is 8"));
        EXPECT_EQ(check_tokens(source, 9).max, 8);
    }
}

TEST(CheckTokens, ReadsEvenlySpacedBlocksOfLargeData) {
    constexpr int64_t kBlock = 32768;
    constexpr int64_t kSize = 100 * kBlock + 17;
    const auto read_with_a_bad_token_at = [](int64_t at, int64_t most) {
        std::vector<int32_t> tokens(static_cast<size_t>(kSize), 7);
        tokens[static_cast<size_t>(at)] = 8;
        return token_range(VectorSource(tokens), most);
    };
    const int64_t most = 5 * kBlock;
    EXPECT_EQ(read_with_a_bad_token_at(0, most).read, most);
    const int64_t stride = (kSize - kBlock) / 4;
    for (const int64_t seen :
         {int64_t{0}, kBlock - 1, stride, 3 * stride + kBlock - 1, kSize - kBlock, kSize - 1}) {
        EXPECT_EQ(read_with_a_bad_token_at(seen, most).max, 8) << seen;
    }
    for (const int64_t unseen : {kBlock, stride - 1, kSize - kBlock - 1}) {
        EXPECT_EQ(read_with_a_bad_token_at(unseen, most).max, 7) << unseen;
        EXPECT_EQ(read_with_a_bad_token_at(unseen, kSize).max, 8) << "all are read";
    }
    EXPECT_EQ(token_range(VectorSource(std::vector<int32_t>(40'000, 1)), 1).read, 40'000)
        << "the first and the last block are all of it";
}

TEST(CheckTokens, ReadsTheLastTokenWhereBlocksTouch) {
    constexpr int64_t kBlock = 32768;
    std::vector<int32_t> tokens(static_cast<size_t>(5 * kBlock + 1), 7);
    tokens.back() = 8;
    const TokenRange range = token_range(VectorSource(tokens), 5 * kBlock);
    EXPECT_EQ(range.read, 5 * kBlock);
    EXPECT_EQ(range.max, 8);
}

TEST(CheckTokens, RefusesNegativeIdsAndVocabularies) {
    EXPECT_THAT(testing::message_of<InputFileError>([] {
                    check_tokens(VectorSource({5, -3}), 10);
                }),
                AllOf(HasSubstr("token 1 is -3"), HasSubstr("negative")));
    EXPECT_THROW(check_tokens(VectorSource({5}), 0), UsageError);
}

}  // namespace
}  // namespace vocabpipe
