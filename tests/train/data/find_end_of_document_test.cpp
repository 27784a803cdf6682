// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/find_end_of_document.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace vocabpipe {
namespace {

using Documents = std::vector<std::vector<int32_t>>;

/// Documents in memory, which counts calls.
class ListedDocuments final : public TokenSource {
public:
    explicit ListedDocuments(const Documents& documents) {
        for (const std::vector<int32_t>& document : documents) {
            tokens_.insert(tokens_.end(), document.begin(), document.end());
            starts_.push_back(std::ssize(tokens_));
        }
        info_.documents = std::ssize(documents);
    }
    [[nodiscard]] int64_t size() const override { return std::ssize(tokens_); }
    void read(int64_t first, std::span<int32_t> out) const override {
        ++calls_;
        std::copy_n(tokens_.begin() + first, out.size(), out.begin());
    }
    void read_document_starts(int64_t first, std::span<int64_t> out) const override {
        ++calls_;
        std::copy_n(starts_.begin() + first, out.size(), out.begin());
    }
    [[nodiscard]] TokenPlace place(int64_t index) const override { return {"memory", index}; }
    [[nodiscard]] const TokenSourceInfo& info() const override { return info_; }
    [[nodiscard]] int calls() const { return calls_; }

private:
    std::vector<int32_t> tokens_;
    std::vector<int64_t> starts_{0};
    TokenSourceInfo info_;
    mutable int calls_ = 0;
};

/// What the docstring says, of sets with less than a million tokens.
std::optional<int32_t> end_of(const Documents& documents) {
    std::optional<int32_t> end;
    for (const std::vector<int32_t>& document : documents) {
        if (document.empty()) continue;
        const int32_t last = document.back();
        if (end.value_or(last) != last) return std::nullopt;
        if (std::count(document.begin(), document.end(), last) > 1) return std::nullopt;
        end = last;
    }
    return end;
}

TEST(FindEndOfDocument, IsTheLastTokenOfAllDocumentsThatIsInsideOfNone) {
    std::mt19937 random(3);
    int found = 0;
    for (int round = 0; round < 3000; ++round) {
        Documents documents(random() % 40);
        for (std::vector<int32_t>& document : documents) {
            document.resize(random() % (round % 5 == 0 ? 30'000 : 6));
            for (int32_t& token : document) token = static_cast<int32_t>(1 + random() % 100'000);
            if (!document.empty()) document.back() = random() % 400 == 0 ? 7 : 0;
        }
        const std::optional<int32_t> end = find_end_of_document(ListedDocuments(documents));
        ASSERT_EQ(end, end_of(documents)) << round;
        found += end ? 1 : 0;
    }
    EXPECT_GT(found, 1000);
    EXPECT_LT(found, 2900);
}

TEST(FindEndOfDocument, LooksAtTheFirstMillionTokensAndTheEndOfAHugeDocument) {
    constexpr size_t kMost = size_t{1} << 20;
    std::vector<int32_t> huge(kMost + 5, 1);
    huge.back() = 9;
    huge[4] = 9;  // before the last 2^20 tokens
    EXPECT_EQ(find_end_of_document(ListedDocuments({huge})), 9);
    EXPECT_EQ(find_end_of_document(ListedDocuments({huge, {8}})), 9);  // not looked at
    EXPECT_EQ(find_end_of_document(ListedDocuments({{8}, huge})), std::nullopt);
    huge[5] = 9;
    EXPECT_EQ(find_end_of_document(ListedDocuments({huge})), std::nullopt);
}

TEST(FindEndOfDocument, ReadsShortDocumentsTogether) {
    const ListedDocuments source(Documents(5000, {1, 2, 3, 0}));
    EXPECT_EQ(find_end_of_document(source), 0);
    EXPECT_LT(source.calls(), 100);
}

}  // namespace
}  // namespace vocabpipe
