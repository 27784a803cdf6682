// SPDX-License-Identifier: Apache-2.0
// Overlapped pairs, lowered apart or as one pass. Their times: simulate_oracles_test.cpp.
#include "vocabpipe/simulate.hpp"

#include "tests/schedule/program_tools.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace vocabpipe::testing {
namespace {

struct DualPipeV {
    explicit DualPipeV(Pairs pairs)
        : schedule(generated({"dualpipe-v", VocabMode::none, false}, 3, 7)),
          costs(uneven_costs(schedule)),
          programs(lower(schedule, sizes_for(schedule), costs, {.pairs = pairs})) {}

    /// Visits the actions of the members of every pair.
    template <typename Visit>
    void each_pair(Visit&& visit) const {
        for (const Program& program : programs) {
            std::vector<uint32_t> action_of(program.passes.size());
            for (uint32_t i = 0; i < program.actions.size(); ++i) {
                if (program.actions[i].what == Do::pass) action_of[program.actions[i].item] = i;
            }
            for (size_t item = 0; item < program.passes.size(); ++item) {
                if (program.passes[item].with_next) {
                    visit(program, action_of[item], action_of[item + 1]);
                }
            }
        }
    }
    Schedule schedule;
    TableCosts costs;
    std::vector<Program> programs;
};

/// An edge of data, not of memory that is used again.
bool shares_a_buffer(const Program& program, const Edge& edge) {
    for (const uint32_t a : program.operands_of(program.actions[edge.before])) {
        for (const uint32_t b : program.operands_of(program.actions[edge.after])) {
            if (a == b && a != kNoBuffer) return true;
        }
    }
    return false;
}

TEST(Pairs, LoweredAsOneWaitForBothInputsAndReleaseTogether) {
    const DualPipeV pipe(Pairs::sum);
    int pairs = 0;
    pipe.each_pair([&](const Program& program, uint32_t first, uint32_t second) {
        ++pairs;
        EXPECT_EQ(program.pairs, Pairs::sum);
        for (const Edge& edge : program.edges) {
            EXPECT_FALSE(edge.after == second && shares_a_buffer(program, edge))
                << "waits when it begins, not when the first does";
            EXPECT_FALSE(edge.before == first && shares_a_buffer(program, edge))
                << "is given away before the second has ended";
        }
    });
    EXPECT_GT(pairs, 3);
}

TEST(Pairs, LoweredAsOneNeedTheirMemoryAtTheSameTime) {
    for (const Pairs pairs : {Pairs::sum, Pairs::longest}) {
        const DualPipeV pipe(pairs);
        pipe.each_pair([&](const Program& program, uint32_t first, uint32_t second) {
            for (const uint32_t a : program.operands_of(program.actions[first])) {
                for (const uint32_t b : program.operands_of(program.actions[second])) {
                    if (a == kNoBuffer || b == kNoBuffer || a == b) continue;
                    const Buffer& of_a = program.buffers[a];
                    const Buffer& of_b = program.buffers[b];
                    EXPECT_TRUE(of_a.offset + of_a.bytes <= of_b.offset ||
                                of_b.offset + of_b.bytes <= of_a.offset);
                }
            }
        });
    }
}

TEST(Pairs, TakeTheSumOrTheLongestOfTheirMembers) {
    const DualPipeV sum(Pairs::sum);
    const DualPipeV longest(Pairs::longest);
    const auto length = [](const DualPipeV& pipe, const Program& program, uint32_t first,
                           uint32_t second) {
        const Simulation simulation = simulate(pipe.programs, pipe.costs);
        int64_t begin = 0;
        int64_t end = 0;
        for (const Span& span : simulation.timeline.spans) {
            if (span.rank != program.rank) continue;
            if (span.action == first) begin = span.begin_ns;
            if (span.action == second) end = span.end_ns;
        }
        return end - begin;
    };
    for (const DualPipeV* pipe : {&sum, &longest}) {
        pipe->each_pair([&](const Program& program, uint32_t first, uint32_t second) {
            const int64_t a =
                pipe->costs.pass_ns(program.rank, pass_of(program, program.actions[first]));
            const int64_t b =
                pipe->costs.pass_ns(program.rank, pass_of(program, program.actions[second]));
            EXPECT_EQ(length(*pipe, program, first, second), pipe == &sum ? a + b : std::max(a, b));
        });
    }
    EXPECT_LT(simulate(longest.programs, longest.costs).summary.makespan_ns,
              simulate(sum.programs, sum.costs).summary.makespan_ns);
}

TEST(Pairs, ApartAreOrdinaryPasses) {
    const DualPipeV apart(Pairs::apart);
    Schedule plain = apart.schedule;
    for (std::vector<Pass>& list : plain.passes) {
        for (Pass& pass : list) pass.with_next = false;
    }
    const std::vector<Program> programs = lower(plain, sizes_for(plain), apart.costs);
    EXPECT_EQ(programs.front().hash, apart.programs.front().hash);
}

}  // namespace
}  // namespace vocabpipe::testing
