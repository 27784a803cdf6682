// SPDX-License-Identifier: Apache-2.0
// What the host alone promises of the output layer; what it computes is compared in
// tests/conformance/.
#include <gtest/gtest.h>

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

TEST(VocabularyScore, RefusesALabelBeyondTheVocabulary) {
    Context ctx({.threads = 1, .poll = {}});
    Problem problem = random_problem(16, 8, 4, 30, DType::fp32, 1, {});
    problem.labels[3] = 30;
    EXPECT_THROW(score(host::vocabulary_score, problem, ctx), UsageError);
    EXPECT_THROW(score(reference::vocabulary_score, problem, ctx), UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
