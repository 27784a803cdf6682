// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/rope_keys.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/checkpoint/rope_values.hpp"

namespace vocabpipe::testing {
namespace {

TEST(RopeConfig, GivesTheTableThatTransformersComputes) {
    constexpr int64_t kPositions = 40;
    for (const RopeValues& of : kRopeValues) {
        const StrictJson config = StrictJson::parse(
            "{\"rope_parameters\": " + std::string(of.parameters) + "}", "config.json");
        const auto half = static_cast<int64_t>(of.frequencies.size());
        const std::vector<float> table =
            rotary_table(read_rope(config, 4096, Rope{}.theta), 2 * half, kPositions);
        for (int64_t t = 0; t < kPositions; ++t) {
            for (int64_t i = 0; i < half; ++i) {
                const double angle =
                    static_cast<double>(t) * of.frequencies[static_cast<size_t>(i)];
                // Their frequencies are fp32, computed in a few operations.
                const double bound = of.amplitude * (4 * 6e-8 * angle + 1e-7);
                const float* const row = table.data() + t * 2 * half;
                EXPECT_NEAR(row[i], of.amplitude * std::cos(angle), bound)
                    << of.parameters << " position " << t << " pair " << i;
                EXPECT_NEAR(row[half + i], of.amplitude * std::sin(angle), bound)
                    << of.parameters << " position " << t << " pair " << i;
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
