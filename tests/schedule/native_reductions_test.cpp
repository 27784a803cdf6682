// SPDX-License-Identifier: Apache-2.0
// LowerOptions::reductions = native: one operation in place of all_to_all, ordered_sums and gather.
#include "tests/schedule/count_actions.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/schedule/rendezvous.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace vocabpipe::testing {
namespace {

class NativeReductions : public ::testing::TestWithParam<Kind> {};

TEST_P(NativeReductions, ReplaceExchangeFoldAndGatherWhereTheRootOwnsRows) {
    for (const int p : {1, 2, 3, 4}) {
        for (const auto& [m, rows] : {std::pair{p + 2, 1000}, std::pair{2, 2}}) {
            SCOPED_TRACE("p=" + std::to_string(p) + " V=" + std::to_string(rows));
            const Schedule schedule = generated(GetParam(), p, m, rows);
            const StepSizes sizes = sizes_for(schedule);
            const TableCosts costs = uneven_costs(schedule);
            const auto programs =
                lower(schedule, sizes, costs, {.reductions = Reductions::native});  // and proves it
            EXPECT_EQ(rendezvous_fault(programs), "");
            EXPECT_GT(simulate(programs, costs).timeline.spans.size(), 0u);

            int64_t native = 0;   // parts of reduces
            int64_t ordered = 0;  // parts of exchanges
            const auto expect = [&, m = m](const std::vector<int>& owners, int root) {
                if (owners.size() < 2) return;
                const bool owns = std::find(owners.begin(), owners.end(), root) != owners.end();
                (owns ? native : ordered) += m * static_cast<int64_t>(owners.size());
            };
            expect(schedule.input.owners(), schedule.rank_of_stage.front());
            if (!schedule.forward_only()) {
                expect(schedule.output.owners(), schedule.rank_of_stage.back());
            }
            ActionCounts counts = count_actions(programs);
            EXPECT_EQ(counts[Do::reduce], native);
            EXPECT_EQ(counts[Do::all_to_all], ordered);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, NativeReductions, ::testing::ValuesIn(every_kind(true)),
                         [](const auto& info) { return name_of(info.param); });

TEST(NativeReductionsOfBf16, ConvertTheSumAtTheRootOnly) {
    const Schedule schedule = generated({"1f1b", VocabMode::two_barriers, false}, 3, 4);
    StepSizes sizes = sizes_for(schedule);
    sizes.dtype = DType::bf16;
    const auto programs =
        lower(schedule, sizes, uneven_costs(schedule), {.reductions = Reductions::native});
    EXPECT_EQ(count_actions(programs)[Do::ordered_sum], 4);
    for (const Action& action : programs[2].actions) {
        if (action.what != Do::ordered_sum) continue;
        const auto operands = programs[2].operands_of(action);
        EXPECT_EQ(programs[2].buffers[operands[0]].bytes,
                  2 * programs[2].buffers[operands[1]].bytes);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
