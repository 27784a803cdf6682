// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "kernels/host/operators.hpp"
#include "tests/kernels/router_sums_cases.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/step_scalars.hpp"

namespace vocabpipe::kernels::test {
namespace {

TEST(RouterSums, AddUpWhatTheRouterDidOverMicrobatches) {
    Context ctx({.poll = {}});
    for (const auto& [tokens, experts, k] :
         {std::array<int64_t, 3>{1, 1, 1}, {5, 3, 2}, {129, 40, 8}, {64, 300, 3}}) {
        const RoutingProblem p(tokens, experts, k);
        std::vector<double> sums(static_cast<size_t>(kExpertLoads + experts), NAN);
        host::sum_routing(ctx, p.load, p.score_sums, p.log_z, k, sums, false);
        expect_sums(sums, p.expected(1));
        host::sum_routing(ctx, p.load, p.score_sums, p.log_z, k, sums, true);
        host::sum_routing(ctx, p.load, p.score_sums, p.log_z, k, sums, true);
        expect_sums(sums, p.expected(3));
    }
}

Matrix row_of(const std::vector<double>& values) {
    Matrix row(1, std::ssize(values), DType::fp32);
    for (int64_t i = 0; i < row.cols(); ++i) row.set(0, i, values[static_cast<size_t>(i)]);
    return row;
}

TEST(RouterSums, BalanceIsOneWhereAllExpertsAreAlike) {
    Context ctx({.poll = {}});
    Matrix log_z(6, 1, DType::fp32);  // 6 tokens, 2 experts each
    for (int64_t n = 0; n < 6; ++n) log_z.set(n, 0, 0);
    std::vector<double> sums(7);
    Matrix load = row_of({3, 3, 3, 3}), scores = row_of({1.5, 1.5, 1.5, 1.5});
    host::sum_routing(ctx, load, scores, log_z, 2, sums, false);
    EXPECT_EQ(sums, (std::vector<double>{1, 1, 0, 3, 3, 3, 3}));
    // All tokens at one pair of experts, for certain: E / k.
    load = row_of({0, 6, 6, 0});
    scores = row_of({0, 3, 3, 0});
    host::sum_routing(ctx, load, scores, log_z, 2, sums, false);
    EXPECT_EQ(sums[kRouterBalance], 2);
}

TEST(RouterSums, AreAddedOverTheReportsOfRanks) {
    Context ctx({.poll = {}});
    std::vector<double> sums(2);
    host::sum_reports(ctx, std::vector<double>{1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400}, 4,
                      1, sums);
    EXPECT_EQ(sums, (std::vector<double>{222, 333}));
    EXPECT_THROW(host::sum_reports(ctx, std::vector<double>(12), 4, 3, sums), UsageError);
    EXPECT_THROW(host::sum_reports(ctx, std::vector<double>(11), 4, 1, sums), UsageError);
}

TEST(CorrectionBias, RisesWhereLoadIsMissingAndFallsWhereItIsGreat) {
    Context ctx({.poll = {}});
    const std::vector<double> loads{0, 9, 4, 3, 4};  // 4 in the mean
    Matrix bias = row_of({0.5, 0, 0, 0, 0});
    StepScalars scalars{.update = 1};
    host::update_correction_bias(ctx, loads, 0.25F, &scalars, bias);
    const auto values = [&] {
        std::vector<double> all;
        for (int64_t e = 0; e < 5; ++e) all.push_back(bias.get(0, e));
        return all;
    };
    EXPECT_EQ(values(), (std::vector<double>{0.75, -0.25, 0, 0.25, 0}));
    scalars.update = 0;
    host::update_correction_bias(ctx, loads, 0.25F, &scalars, bias);
    EXPECT_EQ(values(), (std::vector<double>{0.75, -0.25, 0, 0.25, 0})) << "of a skipped step";
    EXPECT_THROW(host::update_correction_bias(ctx, std::vector<double>(4), 1, &scalars, bias),
                 UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
