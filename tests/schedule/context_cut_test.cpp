// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/context_cut.hpp"

#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<int64_t> positions(const ContextCut& cut) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < cut.own_length(); ++i) all.push_back(cut.position(i));
    return all;
}

TEST(ContextCut, GivesARankAnEarlyAndALateSegment) {
    EXPECT_EQ(positions(ContextCut(12, 0, 3)), (std::vector<int64_t>{0, 1, 10, 11}));
    EXPECT_EQ(positions(ContextCut(12, 1, 3)), (std::vector<int64_t>{2, 3, 8, 9}));
    EXPECT_EQ(positions(ContextCut(12, 2, 3)), (std::vector<int64_t>{4, 5, 6, 7}));
    EXPECT_EQ(positions(ContextCut(3)), (std::vector<int64_t>{0, 1, 2}));
}

TEST(ContextCut, GivesEveryTokenToOneRankAndAllRanksEqualWork) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
        const int64_t length = 48;
        std::vector<int> owners(static_cast<size_t>(length), 0);
        for (int rank = 0; rank < ranks; ++rank) {
            const ContextCut cut(length, rank, ranks);
            EXPECT_EQ(cut.own_length(), length / ranks);
            int64_t seen = 0;  // keys, of all queries
            for (const int64_t at : positions(cut)) {
                ++owners[static_cast<size_t>(at)];
                seen += at + 1;
            }
            EXPECT_EQ(seen, length * (length + 1) / 2 / ranks) << rank << " of " << ranks;
        }
        EXPECT_EQ(owners, std::vector<int>(static_cast<size_t>(length), 1));
    }
}

TEST(ContextCut, TakesItsTokensInOrder) {
    std::vector<int> whole(16);
    std::iota(whole.begin(), whole.end(), 100);
    std::vector<int> own(8);
    ContextCut(16, 1, 2).take<int>(whole, own);
    EXPECT_EQ(own, (std::vector<int>{104, 105, 106, 107, 108, 109, 110, 111}));
}

std::string refusal(int64_t length, int ranks) {
    try {
        ContextCut(length, 0, ranks);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(ContextCut, RefusesSequencesThatDoNotDivide) {
    EXPECT_THAT(refusal(30, 4), AllOf(HasSubstr("--context-parallel-size 4"),
                                      HasSubstr("--seq-length 30 must be a multiple of 8")));
    EXPECT_THAT(refusal(32, 0), HasSubstr("at least 1"));
    EXPECT_EQ(refusal(32, 4), "");
    EXPECT_EQ(refusal(31, 1), "");
}

TEST(ContextForm, HasMegatronsNames) {
    for (const ContextForm form : {ContextForm::allgather, ContextForm::a2a}) {
        EXPECT_EQ(context_form_from(to_string(form)), form);
    }
    EXPECT_EQ(context_form_from("all_gather"), ContextForm::allgather);
    EXPECT_THROW((void)context_form_from("p2p"), UsageError);
    EXPECT_THROW((void)context_form_from("a2a+p2p"), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
