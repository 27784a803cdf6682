// SPDX-License-Identifier: Apache-2.0
// Documents side by side in one sequence, kept apart by first_visible, are what they are in
// sequences of their own.
#include "src/model/families/families.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kFirst = 5, kSecond = 8;  // tokens of two documents
constexpr int64_t kVocabulary = 29;

/// Both documents in one sequence. A document's last token has no label. Only the losses of
/// `counted` count, 0 or 1, or of both.
Batch together(int counted) {
    ModelConfig config;
    config.seq_length = kFirst + kSecond;
    config.vocab_size = kVocabulary;
    Batch batch = random_batch(config, 1, 1, 3, 0);
    for (int64_t t = 0; t < config.seq_length; ++t) {
        const int document = t < kFirst ? 0 : 1;
        const auto n = static_cast<size_t>(t);
        const bool last = t == kFirst - 1 || t == config.seq_length - 1;
        if (last || (counted != 2 && counted != document)) {
            batch.labels[0][n] = -100;
            batch.loss_gradient[0][n] = 0;
        }
        batch.first_visible.resize(1);
        batch.first_visible[0].push_back(document == 0 ? 0 : static_cast<int32_t>(kFirst));
    }
    return batch;
}

/// The same in two sequences; the first one ends with tokens that nothing depends on.
Batch apart(const Batch& together) {
    Batch batch{.sequences = 2, .seq_length = kSecond};
    std::vector<int32_t> tokens(2 * kSecond, 1), labels(2 * kSecond, -100);
    std::vector<float> g(2 * kSecond, 0.0F);
    for (int64_t t = 0; t < kFirst + kSecond; ++t) {
        const auto from = static_cast<size_t>(t);
        const auto to = static_cast<size_t>(t < kFirst ? t : t - kFirst + kSecond);
        tokens[to] = together.tokens[0][from];
        labels[to] = together.labels[0][from];
        g[to] = together.loss_gradient[0][from];
    }
    batch.tokens = {tokens};
    batch.labels = {labels};
    batch.loss_gradient = {g};
    return batch;
}

Gradients run(const std::string& family, const Batch& batch, bool windows) {
    ModelConfig config = small_family(family, 2, batch.seq_length, kVocabulary, false);
    if (!windows) config.sliding_window = 0;
    const Schedule schedule = make_schedule(
        "1f1b",
        {.ranks = 1, .microbatches = 1, .vocab_mode = VocabMode::none, .vocab_size = kVocabulary});
    return run_single_rank(config, even_partition(config, schedule, batch.sequences), schedule,
                           batch, 7);
}

/// |a - b| / |b|.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
    double error = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        error += std::pow(double{a[i]} - double{b[i]}, 2);
        size += std::pow(double{b[i]}, 2);
    }
    return size == 0 ? error : std::sqrt(error / size);
}

// Rotary positions count in distances only, so that the place in the sequence does not matter. Two
// fp32 models of 2 layers: see kFp32Bound in oracle_test.cpp.
constexpr double kBound = 1e-5;

class Documents : public ::testing::TestWithParam<std::string> {};

TEST_P(Documents, HaveTheLossesAndGradientsOfSequencesOfTheirOwn) {
    for (const bool windows : {false, true}) {
        for (const int counted : {0, 1, 2}) {
            SCOPED_TRACE(::testing::Message() << "counting " << counted << ", windows " << windows);
            const Batch one = together(counted);
            const Gradients actual = run(GetParam(), one, windows);
            const Gradients expected = run(GetParam(), apart(one), windows);
            EXPECT_NEAR(actual.losses[0], expected.losses[0], kBound * expected.losses[0]);
            for (const auto& [name, gradient] : expected.by_name) {
                EXPECT_LE(difference(actual.by_name.at(name), gradient), kBound) << name;
            }
        }
    }
}

TEST_P(Documents, WithoutTheMaskTheSecondSeesTheFirst) {
    Batch one = together(1);
    const double masked = run(GetParam(), one, false).losses[0];
    one.first_visible.clear();
    EXPECT_GT(std::abs(run(GetParam(), one, false).losses[0] - masked), 1e-3);
}

TEST_P(Documents, NoGradientReachesTheTokensOfAnother) {
    // The first document's own tokens, which the second lacks: their rows of the embedding.
    Batch one = together(1);
    for (size_t n = 0; n < one.tokens[0].size(); ++n) {
        int32_t& token = one.tokens[0][n];
        token = n < kFirst ? 20 : token % 20;
    }
    const Gradients gradients = run(GetParam(), one, false);
    const std::vector<float>& embedding =
        gradients.by_name.at(model_family(GetParam()).tensors.embedding + ".weight");
    const size_t columns = embedding.size() / kVocabulary;
    for (size_t i = 0; i < columns; ++i) EXPECT_EQ(embedding[20 * columns + i], 0.0F) << i;
}

std::vector<std::string> rotary_families() {
    std::vector<std::string> names = model_families();
    std::erase_if(names, [](const std::string& name) {
        return small_family(name, 1, 1, 2, true).learned_positions;
    });
    return names;
}

INSTANTIATE_TEST_SUITE_P(RotaryFamilies, Documents, ::testing::ValuesIn(rotary_families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace vocabpipe::testing
