// SPDX-License-Identifier: Apache-2.0
// What the tests of sum_routing(), sum_reports() and update_correction_bias() share: inputs, and
// what comes out by the definition.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/router_options.hpp"

namespace vocabpipe::kernels::test {

/// What a router of `experts` experts made of `tokens` tokens.
struct RoutingProblem {
    RoutingProblem(int64_t tokens, int64_t experts, int64_t k)
        : top_k(k),
          logits(Matrix::random(tokens, experts, DType::fp32, 3, -4.0, 4.0)),
          load(1, experts, DType::fp32),
          score_sums(1, experts, DType::fp32),
          log_z(tokens, 1, DType::fp32) {
        Context ctx({.poll = {}});
        std::vector<int32_t> choice(static_cast<size_t>(tokens * k));
        Matrix weights(tokens, k, DType::fp32);
        reference::router_forward(ctx, logits, {}, {.top_k = k}, choice, weights, load, score_sums,
                                  log_z);
    }
    /// The 3 + E sums of `times` microbatches that are all this one.
    [[nodiscard]] std::vector<double> expected(int times) const {
        const auto n = static_cast<double>(log_z.rows());
        double balance = 0, z = 0;
        for (int64_t e = 0; e < load.cols(); ++e) balance += load.get(0, e) * score_sums.get(0, e);
        for (int64_t t = 0; t < log_z.rows(); ++t) z += std::pow(log_z.get(t, 0), 2);
        std::vector<double> sums{
            1, static_cast<double>(load.cols()) * balance / (static_cast<double>(top_k) * n * n),
            z / n};
        for (int64_t e = 0; e < load.cols(); ++e) sums.push_back(load.get(0, e));
        for (double& sum : sums) sum *= times;
        return sums;
    }

    int64_t top_k;
    Matrix logits, load, score_sums, log_z;
};

inline void expect_sums(const std::vector<double>& actual, const std::vector<double>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_NEAR(actual[i], expected[i], 1e-12 * std::abs(expected[i])) << i;
    }
    for (size_t i = kExpertLoads; i < actual.size(); ++i) EXPECT_EQ(actual[i], expected[i]) << i;
}

}  // namespace vocabpipe::kernels::test
