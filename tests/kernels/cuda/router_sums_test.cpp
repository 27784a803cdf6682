// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/router_sums_cases.hpp"
#include "vocabpipe/step_scalars.hpp"

namespace vocabpipe::kernels::test {
namespace {

class RouterSumsOnDevice : public OnDevice {};

TEST_F(RouterSumsOnDevice, AddUpWhatTheRouterDidOverMicrobatches) {
    Device device;
    for (const auto& [tokens, experts, k] :
         {std::array<int64_t, 3>{1, 1, 1}, {5, 3, 2}, {129, 40, 8}, {600, 300, 3}}) {
        const RoutingProblem p(tokens, experts, k);
        const DeviceMatrix load(device, p.load), score_sums(device, p.score_sums);
        const DeviceMatrix log_z(device, p.log_z);
        const DeviceArray<double> sums(
            device, std::vector<double>(static_cast<size_t>(kExpertLoads + experts), NAN));
        for (const bool accumulate : {false, true, true}) {
            cuda::sum_routing(device.context(), load, score_sums, log_z, k, sums, accumulate);
        }
        expect_sums(sums.download(), p.expected(3));
    }
}

TEST_F(RouterSumsOnDevice, AreAddedOverTheReportsOfRanks) {
    Device device;
    constexpr int64_t kEntries = 700, kRanks = 3, kFirst = 99, kWanted = 601;
    std::vector<double> reports;
    for (int64_t i = 0; i < kRanks * kEntries; ++i) reports.push_back(static_cast<double>(i * i));
    const DeviceArray<double> on_device(device, reports);
    const DeviceArray<double> sums(device, std::vector<double>(kWanted, NAN));
    cuda::sum_reports(device.context(), on_device, kEntries, kFirst, sums);
    const std::vector<double> found = sums.download();
    for (int64_t i = 0; i < kWanted; ++i) {
        double expected = 0;
        for (int64_t r = 0; r < kRanks; ++r) {
            expected += reports[static_cast<size_t>(r * kEntries + kFirst + i)];
        }
        EXPECT_EQ(found[static_cast<size_t>(i)], expected) << i;
    }
}

TEST_F(RouterSumsOnDevice, MoveCorrectionBiasesAsOnTheHost) {
    Device device;
    for (const int32_t update : {0, 1}) {
        std::vector<double> loads;
        Matrix bias(1, 300, DType::fp32), expected(1, 300, DType::fp32);
        for (int64_t e = 0; e < 300; ++e) {
            const int64_t load = e < 299 ? e % 3 : 302;  // 2 in the mean
            loads.push_back(static_cast<double>(load));
            bias.set(0, e, 0.125);
            expected.set(0, e, 0.125 + update * (load < 2 ? 0.5 : load > 2 ? -0.5 : 0));
        }
        const DeviceArray<double> on_device(device, loads);
        const DeviceMatrix moved(device, bias);
        const DeviceArray<StepScalars> scalars(device, {StepScalars{.update = update}});
        cuda::update_correction_bias(device.context(), on_device, 0.5F, scalars.data(), moved);
        EXPECT_TRUE(moved.download().same_bits(expected)) << update;
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
