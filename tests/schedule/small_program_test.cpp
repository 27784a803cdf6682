// SPDX-License-Identifier: Apache-2.0
// One program small enough to derive by hand: 1F1B without vocabulary parallelism, two ranks, two
// microbatches; F 1000, B 2000, vocabulary passes 500, messages 10, everything else 0.
//
//   rank 0   E0 0-500  F0 500-1500  E1 1500-2000  F1 2000-3000
//            B0 5520-7520  G0 7520-8020  B1 9520-11520  G1 11520-12020
//   rank 1   F0 1510-2510  S0 2510-3010  T0 3010-3510  B0 3510-5510
//            F1 5510-6510  S1 6510-7010  T1 7010-7510  B1 7510-9510
//
// Messages: the first activation at 1500; the second is posted one pass before 1F1, that is when T0
// ends at 3510; gradients when 1B0 and 1B1 end, at 5510 and 9510. Of actions that become ready at
// the same time passes come first, then what belongs to the earlier microbatch.
#include "tests/schedule/program_tools.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace vocabpipe::testing {
namespace {

struct Expected {
    uint32_t order;
    std::string name;
    Lane lane;
    std::vector<std::string> operands;  ///< names of buffers; "-": none
    int64_t begin;
    int64_t end;
};

const std::vector<std::vector<Expected>> kPrograms{
    {{0, "E0", Lane::compute, {"x0"}, 0, 500},
     {1, "0F0", Lane::compute, {"x0", "y0", "saved0", "-", "F workspace 0"}, 500, 1500},
     {2, "E1", Lane::compute, {"x1"}, 1500, 2000},
     {3, "send to rank 1 activation of microbatch 0", Lane::forward, {"y0"}, 1500, 1510},
     {5, "0F1", Lane::compute, {"x1", "y1", "saved1", "-", "F workspace 1"}, 2000, 3000},
     {11, "send to rank 1 activation of microbatch 1", Lane::forward, {"y1"}, 3510, 3520},
     {13, "receive from rank 1 gradient of microbatch 0", Lane::backward, {"dy0"}, 5510, 5520},
     {14, "0B0", Lane::compute, {"dy0", "x0", "saved0", "-", "dx0", "B workspace 0"}, 5520, 7520},
     {20, "G0", Lane::compute, {"dx0"}, 7520, 8020},
     {21, "receive from rank 1 gradient of microbatch 1", Lane::backward, {"dy1"}, 9510, 9520},
     {22, "0B1", Lane::compute, {"dy1", "x1", "saved1", "-", "dx1", "B workspace 1"}, 9520, 11520},
     {23, "G1", Lane::compute, {"dx1"}, 11520, 12020}},
    {{3, "receive from rank 0 activation of microbatch 0", Lane::forward, {"x0"}, 1500, 1510},
     {4, "1F0", Lane::compute, {"x0", "X0", "saved0", "-", "F workspace 0"}, 1510, 2510},
     {6,
      "S0",
      Lane::compute,
      {"X0", "numerator0", "statistics0", "-", "S workspace 0"},
      2510,
      3010},
     {7,
      "combine_softmax of microbatch 0",
      Lane::local,
      {"statistics0", "factors0", "-"},
      3010,
      3010},
     {8, "T0", Lane::compute, {"X0", "numerator0", "factors0", "u0", "T workspace 0"}, 3010, 3510},
     {9, "ordered_sum output-gradient of microbatch 0", Lane::local, {"u0", "dy0"}, 3510, 3510},
     {10, "1B0", Lane::compute, {"dy0", "x0", "saved0", "-", "dx0", "B workspace 0"}, 3510, 5510},
     {11, "receive from rank 0 activation of microbatch 1", Lane::forward, {"x1"}, 3510, 3520},
     {12, "1F1", Lane::compute, {"x1", "X1", "saved1", "-", "F workspace 1"}, 5510, 6510},
     {13, "send to rank 0 gradient of microbatch 0", Lane::backward, {"dx0"}, 5510, 5520},
     {15,
      "S1",
      Lane::compute,
      {"X1", "numerator1", "statistics1", "-", "S workspace 1"},
      6510,
      7010},
     {16,
      "combine_softmax of microbatch 1",
      Lane::local,
      {"statistics1", "factors1", "-"},
      7010,
      7010},
     {17, "T1", Lane::compute, {"X1", "numerator1", "factors1", "u1", "T workspace 1"}, 7010, 7510},
     {18, "ordered_sum output-gradient of microbatch 1", Lane::local, {"u1", "dy1"}, 7510, 7510},
     {19, "1B1", Lane::compute, {"dy1", "x1", "saved1", "-", "dx1", "B workspace 1"}, 7510, 9510},
     {21, "send to rank 0 gradient of microbatch 1", Lane::backward, {"dx1"}, 9510, 9520}}};

/// Positions in the lists above: the first must end before the second begins.
const std::vector<std::vector<std::pair<uint32_t, uint32_t>>> kDataEdges{
    {{1, 3}, {4, 5}, {2, 6}, {6, 7}, {7, 9}, {9, 10}},
    {{0, 1},
     {2, 3},
     {3, 4},
     {4, 5},
     {5, 6},
     {4, 7},
     {7, 8},
     {6, 9},
     {10, 11},
     {11, 12},
     {12, 13},
     {13, 14},
     {14, 15}}};

class SmallProgram : public ::testing::Test {
protected:
    SmallProgram() {
        const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 2, 2);
        costs_ = TableCosts::uniform(2, 2, 1000, 2000, 500);
        costs_.latency_ns = 10;
        sizes_ = sizes_for(schedule);
        programs_ = lower(schedule, sizes_, costs_);
    }

    TableCosts costs_;
    StepSizes sizes_;
    std::vector<Program> programs_;
};

TEST_F(SmallProgram, IsTheOneDerivedByHand) {
    for (size_t rank = 0; rank < 2; ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        const Program& program = programs_[rank];
        const std::vector<Expected>& expected = kPrograms[rank];
        ASSERT_EQ(program.actions.size(), expected.size());
        std::map<std::string, uint32_t> buffer_of{{"-", kNoBuffer}};
        for (size_t i = 0; i < expected.size(); ++i) {
            SCOPED_TRACE(expected[i].name);
            const Action& action = program.actions[i];
            EXPECT_EQ(program.name_of(action), expected[i].name);
            EXPECT_EQ(action.order, expected[i].order);
            EXPECT_EQ(action.lane, expected[i].lane);
            const auto operands = program.operands_of(action);
            ASSERT_EQ(operands.size(), expected[i].operands.size());
            for (size_t k = 0; k < operands.size(); ++k) {
                const auto [entry, added] =
                    buffer_of.try_emplace(expected[i].operands[k], operands[k]);
                EXPECT_EQ(entry->second, operands[k]) << expected[i].operands[k];
            }
        }
        std::set<uint32_t> different;
        for (const auto& [name, buffer] : buffer_of) different.insert(buffer);
        EXPECT_EQ(different.size(), buffer_of.size());
        EXPECT_EQ(program.buffers.size(), buffer_of.size() - 1);
    }
}

TEST_F(SmallProgram, HasTheDataEdgesDerivedByHandAndOthersOnlyForReuseOfMemory) {
    for (size_t rank = 0; rank < 2; ++rank) {
        const Program& program = programs_[rank];
        std::multiset<std::pair<uint32_t, uint32_t>> edges;
        for (const Edge& edge : program.edges) edges.emplace(edge.before, edge.after);
        for (const auto& edge : kDataEdges[rank]) {
            const auto found = edges.find(edge);
            ASSERT_NE(found, edges.end()) << "rank " << rank << ": " << edge.first << " before "
                                          << edge.second << " is missing";
            edges.erase(found);
        }
        for (const auto& [before, after] : edges) {
            bool reuse = false;
            for (const uint32_t a : program.operands_of(program.actions[before])) {
                for (const uint32_t b : program.operands_of(program.actions[after])) {
                    if (a == b || a == kNoBuffer || b == kNoBuffer) continue;
                    const Buffer& x = program.buffers[a];
                    const Buffer& y = program.buffers[b];
                    if (x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes) {
                        reuse = true;
                    }
                }
            }
            EXPECT_TRUE(reuse) << "rank " << rank << ": " << before << " before " << after;
        }
    }
}

TEST_F(SmallProgram, HasBuffersOfTheRightSizeAndPurpose) {
    const auto boundary = static_cast<uint64_t>(24 * 8 * 4);
    const auto buffer = [&](size_t rank, size_t action, size_t operand) -> const Buffer& {
        const Program& program = programs_[rank];
        return program.buffers[program.operands_of(program.actions[action])[operand]];
    };
    EXPECT_EQ(buffer(0, 0, 0).bytes, boundary);
    EXPECT_EQ(buffer(0, 0, 0).purpose, Purpose::boundary);
    EXPECT_EQ(buffer(0, 0, 0).born, 0U);
    EXPECT_EQ(buffer(0, 0, 0).dies, 7U);  // x0 is read last by 0B0
    EXPECT_EQ(buffer(0, 1, 1).dies, 3U);  // y0 lives until its send has ended
    EXPECT_EQ(buffer(0, 1, 2).bytes, 10 * boundary);
    EXPECT_EQ(buffer(0, 1, 2).purpose, Purpose::activation);
    EXPECT_EQ(buffer(0, 1, 4).purpose, Purpose::workspace);
    EXPECT_EQ(buffer(0, 1, 4).dies, 1U);
    EXPECT_EQ(buffer(1, 2, 1).bytes, 24U * 1000 * 4);  // [N, v]
    EXPECT_EQ(buffer(1, 2, 1).purpose, Purpose::vocabulary);
    EXPECT_EQ(buffer(1, 2, 1).dies, 4U);            // by T0
    EXPECT_EQ(buffer(1, 2, 2).bytes, 24U * 4 * 4);  // four statistics per token
    EXPECT_EQ(buffer(1, 3, 1).bytes, 24U * 2 * 4);  // two factors per token
    EXPECT_EQ(buffer(1, 4, 3).bytes, 24U * 8 * 4);  // fp32 whatever the run's type
}

TEST_F(SmallProgram, RunsAtTheTimesDerivedByHand) {
    const Simulation simulation = simulate(programs_, costs_);
    ASSERT_EQ(simulation.timeline.spans.size(), kPrograms[0].size() + kPrograms[1].size());
    for (const Span& span : simulation.timeline.spans) {
        const Expected& expected = kPrograms[span.rank].at(span.action);
        EXPECT_EQ(span.begin_ns, expected.begin) << "rank " << span.rank << ": " << expected.name;
        EXPECT_EQ(span.end_ns, expected.end) << "rank " << span.rank << ": " << expected.name;
    }
    EXPECT_EQ(simulation.summary.makespan_ns, 12020);
    EXPECT_EQ(simulation.summary.largest_span_ns, 12020);
    ASSERT_EQ(simulation.summary.ranks.size(), 2U);
    EXPECT_EQ(simulation.summary.ranks[0].busy_ns, 8000);
    EXPECT_EQ(simulation.summary.ranks[0].span_ns, 12020);
    EXPECT_EQ(simulation.summary.ranks[1].busy_ns, 8000);
    EXPECT_EQ(simulation.summary.ranks[1].span_ns, 8000);
    EXPECT_DOUBLE_EQ(simulation.summary.bubble, 1.0 - 8000.0 / 12020.0);
}

}  // namespace
}  // namespace vocabpipe::testing
