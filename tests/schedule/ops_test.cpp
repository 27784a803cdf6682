// SPDX-License-Identifier: Apache-2.0
// Rows of actions and passes, and the structs that hold their operands.
#include "src/schedule/ops.hpp"

#include "tests/schedule/program_tools.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>

namespace vocabpipe::testing {
namespace {

template <size_t... i>
std::array<size_t, sizeof...(i)> operands_of_passes(std::index_sequence<i...>) {
    return {kAlwaysStored<OperandsOf<static_cast<Op>(i)>>...};
}

TEST(Ops, EveryActionOfAProgramHasTheOperandsOfItsRow) {
    const auto of_pass = operands_of_passes(std::make_index_sequence<kOpTraits.size()>());
    std::set<Do> seen;
    std::set<Op> seen_passes;
    for (const Kind& kind : every_kind(/*with_evaluation=*/true)) {
        for (const Program& program : lowered(generated(kind, 4, 5))) {
            for (const Action& action : program.actions) {
                const bool pass = action.what == Do::pass;
                const Op op = pass ? program.passes[action.item].op : Op::F;
                const size_t wanted =
                    pass ? of_pass[static_cast<size_t>(op)] : traits(action.what).operands;
                ASSERT_EQ(action.operand_count, wanted)
                    << name_of(kind) << ": " << program.name_of(action);
                seen.insert(action.what);
                if (pass) seen_passes.insert(op);
            }
        }
    }
    EXPECT_GE(seen.size(), 8U);  // all but all_gather_v and reduce, which need replicas or native
    EXPECT_EQ(seen_passes.size(), 8U);  // F B I W E G S T
}

TEST(Ops, OperandsAreStoredInTheOrderOfTheirStruct) {
    constexpr auto ids = stored(
        BackwardOperands{.dy = 1, .x = 2, .saved = 3, .recomputed = 4, .dx = 5, .workspace = 6});
    EXPECT_EQ(ids, (std::array<uint32_t, 7>{1, 2, 3, 4, 5, 6, kNoBuffer}));
    const auto read = read_operands<BackwardOperands>(ids);
    EXPECT_EQ(read.dy, 1U);
    EXPECT_EQ(read.workspace, 6U);
    const auto short_of = read_operands<BackwardOperands>(std::span(ids).first(2));
    EXPECT_EQ(short_of.x, 2U);
    EXPECT_EQ(short_of.saved, kNoBuffer);
}

TEST(Ops, RowsSayWhatATransferSendsAndReceives) {
    const std::array<uint32_t, 2> ids{7, 8};
    EXPECT_EQ(moved(Do::send, ids).sent, 7U);
    EXPECT_EQ(moved(Do::send, ids).received, kNoBuffer);
    EXPECT_EQ(moved(Do::receive, ids).sent, kNoBuffer);
    EXPECT_EQ(moved(Do::receive, ids).received, 7U);
    EXPECT_EQ(moved(Do::broadcast, ids).received, 7U);
    EXPECT_EQ(moved(Do::all_to_all, ids).received, 8U);
    EXPECT_EQ(moved(Do::ordered_sum, ids).sent, kNoBuffer);
    for (const ActionTraits& row : kActions) {
        const bool moves = row.places.sent != kNoBuffer || row.places.received != kNoBuffer;
        EXPECT_EQ(moves, row.kind == ActionKind::communication) << row.name;
        EXPECT_EQ(row.algorithm != nullptr,
                  row.kind == ActionKind::communication && !row.point_to_point)
            << row.name;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
