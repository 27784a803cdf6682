// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/router_sums_cases.hpp"
#include "vocabpipe/step_scalars.hpp"

namespace vocabpipe::kernels::test {
namespace {

Matrix row_of(const std::vector<double>& values) {
    Matrix row(1, std::ssize(values), DType::fp32);
    for (int64_t i = 0; i < row.cols(); ++i) row.set(0, i, values[static_cast<size_t>(i)]);
    return row;
}

using RouterSums = OperatorTest<>;

TEST_P(RouterSums, AddUpWhatTheRouterDidOverMicrobatches) {
    for (const auto& [tokens, experts, k] :
         {std::array<int64_t, 3>{1, 1, 1}, {5, 3, 2}, {129, 40, 8}, {64, 300, 3}, {600, 300, 3}}) {
        const RoutingProblem p(tokens, experts, k);
        const Uploaded load = up(p.load), score_sums = up(p.score_sums), log_z = up(p.log_z);
        const auto sums = up(std::vector<double>(static_cast<size_t>(kExpertLoads + experts), NAN));
        for (const int times : {1, 2, 3}) {
            ops().sum_routing(ctx(), load, score_sums, log_z, k, sums, times > 1);
            expect_sums(sums.download(), p.expected(times));
        }
    }
}

TEST_P(RouterSums, BalanceIsOneWhereAllExpertsAreAlike) {
    const Uploaded log_z = up(Matrix(6, 1, DType::fp32).mapped(DType::fp32, [](double) {
        return 0.0;
    }));  // 6 tokens, 2 experts each
    const auto sums = up(std::vector<double>(7));
    ops().sum_routing(ctx(), up(row_of({3, 3, 3, 3})), up(row_of({1.5, 1.5, 1.5, 1.5})), log_z, 2,
                      sums, false);
    EXPECT_EQ(sums.download(), (std::vector<double>{1, 1, 0, 3, 3, 3, 3}));
    // All tokens at one pair of experts, for certain: E / k.
    ops().sum_routing(ctx(), up(row_of({0, 6, 6, 0})), up(row_of({0, 3, 3, 0})), log_z, 2, sums,
                      false);
    EXPECT_EQ(sums.download()[kRouterBalance], 2);
}

TEST_P(RouterSums, AreAddedOverTheReportsOfRanks) {
    constexpr int64_t kEntries = 700, kRanks = 3, kFirst = 99, kWanted = 601;
    std::vector<double> reports;
    for (int64_t i = 0; i < kRanks * kEntries; ++i) reports.push_back(static_cast<double>(i * i));
    const auto sums = up(std::vector<double>(kWanted, NAN));
    ops().sum_reports(ctx(), up(reports), kEntries, kFirst, sums);
    const std::vector<double> found = sums.download();
    for (int64_t i = 0; i < kWanted; ++i) {
        double expected = 0;
        for (int64_t r = 0; r < kRanks; ++r) {
            expected += reports[static_cast<size_t>(r * kEntries + kFirst + i)];
        }
        EXPECT_EQ(found[static_cast<size_t>(i)], expected) << i;
    }
}

TEST_P(RouterSums, ReportsAndWhatIsWantedOfThemFit) {
    const auto sums = up(std::vector<double>(2));
    const auto whole = up(std::vector<double>(12)), cut = up(std::vector<double>(11));
    EXPECT_THROW(ops().sum_reports(ctx(), whole, 4, 3, sums), UsageError);
    EXPECT_THROW(ops().sum_reports(ctx(), cut, 4, 1, sums), UsageError);
}

TEST_P(RouterSums, BiasesRiseWhereLoadIsMissingAndFallWhereItIsGreat) {
    for (const int32_t update : {0, 1}) {
        std::vector<double> loads;
        Matrix bias(1, 300, DType::fp32), expected(1, 300, DType::fp32);
        for (int64_t e = 0; e < 300; ++e) {
            const int64_t load = e < 299 ? e % 3 : 302;  // 2 in the mean
            loads.push_back(static_cast<double>(load));
            bias.set(0, e, 0.125);
            expected.set(0, e, 0.125 + update * (load < 2 ? 0.5 : load > 2 ? -0.5 : 0));
        }
        const Uploaded moved = up(bias);
        const auto scalars = up(std::vector{StepScalars{.update = update}});
        ops().update_correction_bias(ctx(), up(loads), 0.5F, scalars.data(), moved);
        EXPECT_TRUE(moved.download().same_bits(expected)) << update;
    }
    const auto scalars = up(std::vector{StepScalars{.update = 1}});
    const Uploaded bias = up(row_of({0.5, 0, 0, 0, 0}));
    ops().update_correction_bias(ctx(), up(std::vector<double>{0, 9, 4, 3, 4}), 0.25F,
                                 scalars.data(), bias);  // 4 in the mean
    EXPECT_TRUE(bias.download().same_bits(row_of({0.75, -0.25, 0, 0.25, 0})));
    EXPECT_THROW(
        ops().update_correction_bias(ctx(), up(std::vector<double>(4)), 1, scalars.data(), bias),
        UsageError);
}

// All devices but the reference, which has no sums of its own.
INSTANTIATE_TEST_SUITE_P(Devices, RouterSums,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
