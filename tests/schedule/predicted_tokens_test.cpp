// SPDX-License-Identifier: Apache-2.0
// The output layer of a model that predicts several tokens has a row for each of them, the last
// stage has the embedded tokens, and nothing else of a program is larger.
#include "src/schedule/operands.hpp"
#include "tests/schedule/program_tools.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kPredicted = 3;

/// Bytes of the operands of each action, by its name; 0 where it has none.
std::map<std::string, std::vector<int64_t>> operand_bytes(const Program& program) {
    std::map<std::string, std::vector<int64_t>> bytes;
    for (const Action& action : program.actions) {
        std::vector<int64_t>& of = bytes[program.name_of(action)];
        for (const uint32_t operand : program.operands_of(action)) {
            of.push_back(
                operand == kNoBuffer ? 0 : static_cast<int64_t>(program.buffers[operand].bytes));
        }
    }
    return bytes;
}

/// Operands that have a row for each predicted token.
std::vector<size_t> rows_of_output(const Program& program, const Action& action, int last_stage) {
    if (action.what != Do::pass) return {};
    const Pass& pass = pass_of(program, action);
    const bool last = pass.stage == last_stage;
    switch (pass.op) {
        case Op::S:
            return {0, 2, 3};  // x, statistics, input_gradient
        case Op::T:
            return {0, 2, 3};  // x, factors, input_gradient
        case Op::F:
            return last ? std::vector<size_t>{1} : std::vector<size_t>{};  // y
        case Op::B:
        case Op::I:
            return last ? std::vector<size_t>{0} : std::vector<size_t>{};  // dy
        default:
            return {};
    }
}

class PredictedTokens : public ::testing::TestWithParam<Kind> {};

TEST_P(PredictedTokens, HaveARowEachInTheOutputLayerAlone) {
    for (const int p : {1, 3}) {
        const Schedule schedule = generated(GetParam(), p, 4);
        StepSizes sizes = sizes_for(schedule);
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> one = lower(schedule, sizes, costs);
        sizes.predicted_tokens = kPredicted;
        const int64_t boundary = sizes.tokens * sizes.hidden * size_of(sizes.dtype);
        const std::vector<Program> three = lower(schedule, sizes, costs);
        EXPECT_FALSE(find_deadlock(three).has_value());
        EXPECT_GT(simulate(three, costs).summary.step_ns, 0);
        for (size_t rank = 0; rank < one.size(); ++rank) {
            const auto before = operand_bytes(one[rank]);
            const auto after = operand_bytes(three[rank]);
            for (const Action& action : three[rank].actions) {
                const std::string name = three[rank].name_of(action);
                const bool transformer_message =
                    action.what == Do::send || action.what == Do::receive;
                if (!transformer_message && action.what != Do::pass) continue;
                std::vector<int64_t> expected = before.at(name);
                for (const size_t i : rows_of_output(three[rank], action, schedule.stages - 1)) {
                    expected[i] *= kPredicted;
                }
                // The embedded tokens of the last stage and their gradient come behind.
                for (size_t i = expected.size(); i < after.at(name).size(); ++i) {
                    expected.push_back(boundary);
                }
                EXPECT_EQ(after.at(name), expected) << name;
            }
            const auto rows = [&](uint16_t reduction) {
                return three[rank].reductions[reduction].first_row.back();
            };
            EXPECT_EQ(rows(kOutputReduction), kPredicted * sizes.tokens);
            EXPECT_EQ(rows(kInputReduction), sizes.tokens);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, PredictedTokens, ::testing::ValuesIn(every_kind(true)),
                         [](const auto& info) { return name_of(info.param); });

TEST(PredictedTokensCosts, AreThoseOfSoManyRowsOfTheOutputLayer) {
    const Schedule schedule = generated({"1f1b", VocabMode::two_barriers, false}, 4, 4);
    StepSizes sizes = sizes_for(schedule, 24000);
    TableCosts costs = uneven_costs(schedule);
    costs.latency_ns = 0;
    const PassCosts one = PassCosts::of(costs, sizes, schedule);
    sizes.predicted_tokens = kPredicted;
    const PassCosts three = PassCosts::of(costs, sizes, schedule);
    EXPECT_NEAR(static_cast<double>(three.c0), 3.0 * static_cast<double>(one.c0), 3);
    EXPECT_NEAR(static_cast<double>(three.c1), 3.0 * static_cast<double>(one.c1), 3);
    EXPECT_NEAR(static_cast<double>(three.reduce), 3.0 * static_cast<double>(one.reduce), 6);
    EXPECT_EQ(three.hop, one.hop);
    EXPECT_EQ(three.gradient, one.gradient);
}

TEST(PredictedTokensCosts, AreRefusedWithoutAnyToken) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 2, 4);
    StepSizes sizes = sizes_for(schedule);
    sizes.predicted_tokens = 0;
    EXPECT_THROW((void)lower(schedule, sizes, uneven_costs(schedule)), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
