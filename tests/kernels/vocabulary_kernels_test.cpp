// SPDX-License-Identifier: Apache-2.0
// What the host alone promises of the output layer; what it computes is compared in
// tests/conformance/.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/conformance/vocabulary_oracle.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

/// S of the whole vocabulary, on the host or by the reference.
void score(decltype(host::vocabulary_score) by, const Problem& problem, Context& ctx) {
    const int64_t tokens = problem.tokens(), vocab = problem.vocab();
    Matrix exp_logits(tokens, vocab, DType::fp32), statistics(tokens, kStatistics, DType::fp32);
    std::vector<std::byte> workspace(static_cast<size_t>(
        host::vocabulary_score_workspace_bytes(tokens, vocab, problem.x.type())));
    by(ctx, problem.x, problem.w, problem.labels,
       {.first_row = 0, .rows = vocab, .vocab_size = vocab}, problem.options, exp_logits,
       statistics, {}, workspace);
}

TEST(VocabularyScore, PollsBetweenTilesOfLogits) {
    int polls = 0;
    Context ctx({.threads = 1, .poll = [&] { ++polls; }});
    score(host::vocabulary_score, random_problem(13, 128, 4, 20000, DType::fp32, 1, {}), ctx);
    EXPECT_GT(polls, 3) << "communication must advance between tiles";
}

// Tiles of 2 MiB, at most 4096 tokens and at least 256 columns of fp32, in whole 64 columns and all
// of about the same width. Logits of fp32 stay where they are.
TEST(VocabularyScore, HasMemoryForATileOfLogits) {
    const auto columns = [](int64_t tokens, int64_t rows) {
        const int64_t of_logits =
            host::vocabulary_score_workspace_bytes(tokens, rows, DType::bf16) -
            host::vocabulary_score_workspace_bytes(tokens, rows, DType::fp32);
        const int64_t column_bytes = std::min<int64_t>(tokens, 4096) * 4;
        EXPECT_EQ(of_logits % column_bytes, 0);
        return of_logits / column_bytes;
    };
    EXPECT_EQ(columns(1000, 128), 128);
    EXPECT_EQ(columns(1000, 129), 192);
    EXPECT_EQ(columns(1000, 512), 512);
    EXPECT_EQ(columns(1000, 767), 768) << "one tile for less than one and a half";
    EXPECT_EQ(columns(1000, 768), 384) << "two tiles";
    EXPECT_EQ(columns(1000, 128256), 512);
    EXPECT_EQ(columns(100, 128256), 5184);
    EXPECT_EQ(columns(7, 128256), 64128);
    EXPECT_EQ(columns(1, 128256), 128256);
    EXPECT_EQ(columns(2048, 32000), 256);
    EXPECT_EQ(columns(4096, 32000), 256) << "twice as large, as no tile is narrower";
    EXPECT_EQ(columns(100000, 32000), 256);
}

TEST(VocabularyScore, RefusesALabelBeyondTheVocabulary) {
    Context ctx({.threads = 1, .poll = {}});
    Problem problem = random_problem(16, 8, 4, 30, DType::fp32, 1, {});
    problem.labels[3] = 30;
    EXPECT_THROW(score(host::vocabulary_score, problem, ctx), UsageError);
    EXPECT_THROW(score(reference::vocabulary_score, problem, ctx), UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
