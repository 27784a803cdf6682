// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

/// What all ranks draw when each holds rows[r] of the logits, in order.
int32_t draw(const std::vector<float>& logits, const std::vector<size_t>& rows,
             const SamplingOptions& options, double u) {
    std::vector<int32_t> tokens(rows.size());
    World::threads(static_cast<int>(rows.size()), {.timeout_seconds = 30})
        .run([&](Communicator& world) {
            const auto rank = static_cast<size_t>(world.rank());
            const auto first =
                std::accumulate(rows.begin(), rows.begin() + world.rank(), size_t{0});
            tokens[rank] = sample(world,
                                  {.logits = std::span(logits).subspan(first, rows[rank]),
                                   .first = static_cast<int64_t>(first)},
                                  options, u);
        });
    EXPECT_EQ(std::ranges::count(tokens, tokens.front()), std::ssize(tokens));
    return tokens.front();
}

/// The definition, in double precision and with all logits at hand.
int32_t textbook(const std::vector<float>& logits, const SamplingOptions& options, double u) {
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto of = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
    std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) { return of(a) > of(b); });
    if (options.temperature <= 0) return ids.front();
    if (options.top_k > 0 && options.top_k < std::ssize(ids)) {
        ids.resize(static_cast<size_t>(options.top_k));
    }
    std::vector<double> weights;
    for (const int32_t id : ids) {
        weights.push_back(std::exp((of(id) - of(ids.front())) / options.temperature));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    size_t kept = 0;
    double nucleus = 0;
    while (kept < weights.size() && (kept == 0 || nucleus < options.top_p * sum)) {
        nucleus += weights[kept++];
    }
    double rest = u * nucleus;
    for (size_t i = 0; i + 1 < kept; ++i) {
        rest -= weights[i];
        if (rest < 0) return ids[i];
    }
    return ids[kept - 1];
}

TEST(Sampling, FollowsTheDistribution) {
    // Probabilities 1/8, 1/2, 1/8, 1/4: in falling order tokens 1, 3, 0, 2.
    const std::vector<float> logits{std::log(1.0F), std::log(4.0F), std::log(1.0F), std::log(2.0F)};
    const auto at = [&](double u, const SamplingOptions& options = {}) {
        const int32_t token = draw(logits, {4}, options, u);
        EXPECT_EQ(draw(logits, {1, 0, 2, 1}, options, u), token);
        return token;
    };
    EXPECT_EQ(at(0), 1);
    EXPECT_EQ(at(0.49), 1);
    EXPECT_EQ(at(0.51), 3);
    EXPECT_EQ(at(0.74), 3);
    EXPECT_EQ(at(0.76), 0);
    EXPECT_EQ(at(0.99), 2);
    EXPECT_EQ(at(0.99, {.temperature = 0}), 1);
    EXPECT_EQ(at(0.99, {.top_k = 1}), 1);
    EXPECT_EQ(at(0.99, {.top_k = 2}), 3);
    EXPECT_EQ(at(0.66, {.top_k = 2}), 1);  // of 2/3 and 1/3
    EXPECT_EQ(at(0.99, {.top_k = 100}), 2);
    EXPECT_EQ(at(0.99, {.top_p = 0.7}), 3);
    EXPECT_EQ(at(0.99, {.top_p = 0.0}), 1);
    // Halving the temperature squares the ratios: 16 : 4 : 1 : 1.
    EXPECT_EQ(at(0.72, {.temperature = 0.5}), 1);
    EXPECT_EQ(at(0.73, {.temperature = 0.5}), 3);
}

TEST(Sampling, DrawsWhatTheDefinitionSaysHoweverLogitsAreSpread) {
    std::mt19937_64 random(7);
    const std::vector<SamplingOptions> choices{{},
                                               {.temperature = 0.7},
                                               {.temperature = 2, .top_k = 13},
                                               {.top_p = 0.8},
                                               {.temperature = 1.3, .top_k = 40, .top_p = 0.5},
                                               {.temperature = 0}};
    for (int round = 0; round < 60; ++round) {
        // Every other round with many equal logits, of both signs and 0.
        std::vector<float> logits(101);
        for (float& z : logits) {
            z = std::normal_distribution<float>(0, 3)(random);
            if (round % 2 == 1) z = std::round(z);
        }
        const double u = std::uniform_real_distribution<>()(random);
        const SamplingOptions& options = choices[static_cast<size_t>(round) % choices.size()];
        const int32_t expected = textbook(logits, options, u);
        EXPECT_EQ(draw(logits, {101}, options, u), expected) << round;
        EXPECT_EQ(draw(logits, {51, 50}, options, u), expected) << round;
        EXPECT_EQ(draw(logits, {0, 34, 0, 1, 66}, options, u), expected) << round;
    }
}

TEST(Sampling, TakesTheFirstOfEquallyLikelyTokens) {
    const std::vector<float> logits{-0.0F, -1, 0.0F, 0.0F};
    EXPECT_EQ(draw(logits, {2, 2}, {.temperature = 0}, 0.9), 0);
    EXPECT_EQ(draw(logits, {2, 2}, {.top_k = 2}, 0.9), 2);
    EXPECT_EQ(draw(logits, {2, 2}, {.top_p = 0.1}, 0.9), 0);
}

TEST(Sampling, RefusesTheLogitsOfADivergedModelOnEveryRank) {
    for (const float wrong : {std::nanf(""), INFINITY, -INFINITY}) {
        try {
            (void)draw({0, 1, wrong, 1}, {1, 1, 2}, {.temperature = 0}, 0.5);
            ADD_FAILURE() << wrong << " was drawn from";
        } catch (const AgreedError& error) {
            EXPECT_EQ(error.exit_code(), ExitCode::wrong_values);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
