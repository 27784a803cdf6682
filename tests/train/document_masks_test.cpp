// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/document_masks.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace vocabpipe {
namespace {

constexpr int32_t kEndOfDocument = 0;

TEST(DocumentMasks, IgnoreTheLabelBehindEveryEnd) {
    const std::vector<int32_t> tokens{5, kEndOfDocument, 6, 7, kEndOfDocument, kEndOfDocument};
    std::vector<int32_t> labels{kEndOfDocument, 6, 7, kEndOfDocument, kEndOfDocument, 8};
    ignore_after_ends(tokens, kEndOfDocument, labels);
    EXPECT_EQ(labels, (std::vector<int32_t>{kEndOfDocument, -1, 7, kEndOfDocument, -1, -1}));
}

TEST(DocumentMasks, CountAnEndToTheDocumentItEnds) {
    const std::vector<int32_t> tokens{5, 6, kEndOfDocument, 7, kEndOfDocument, kEndOfDocument, 8};
    std::vector<int32_t> first(tokens.size());
    find_document_starts(tokens, kEndOfDocument, first);
    EXPECT_EQ(first, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 6}));
}

TEST(DocumentMasks, SeparateDocumentsAsALoopOverAllPairsDoes) {
    std::mt19937 random(3);
    for (int round = 0; round < 50; ++round) {
        std::vector<int32_t> tokens(40);
        for (int32_t& t : tokens) t = static_cast<int32_t>(random() % 5);
        std::vector<int32_t> first(tokens.size());
        find_document_starts(tokens, kEndOfDocument, first);
        for (size_t query = 0; query < tokens.size(); ++query) {
            for (size_t key = 0; key <= query; ++key) {
                // Megatron: what is at or before an end is hidden from what is behind it.
                bool visible = true;
                for (size_t end = key; end < query; ++end) visible &= tokens[end] != kEndOfDocument;
                ASSERT_EQ(static_cast<size_t>(first[query]) <= key, visible) << query << " " << key;
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe
