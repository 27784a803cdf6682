// SPDX-License-Identifier: Apache-2.0
// Microbatches of several lengths in one step: every microbatch has what it has in a step whose
// microbatches all have its length.
#include "tests/schedule/program_tools.hpp"
#include "tests/support/number_of_cases.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// The sizes of a step whose microbatches all have one of the lengths of `sizes`.
StepSizes of_one_length(StepSizes sizes, size_t length) {
    if (length > 0) {
        LengthSizes& chosen = sizes.shorter[length - 1];
        sizes.tokens = chosen.tokens;
        sizes.stages = chosen.stages;
        sizes.shards = chosen.shards;
    }
    sizes.shorter.clear();
    sizes.length_of_microbatch.clear();
    return sizes;
}

/// What an action of a microbatch moves or computes with.
struct Shape {
    std::vector<uint64_t> operands;   ///< bytes
    std::vector<int64_t> first_rows;  ///< of its reduction; empty: it has none
    std::vector<int64_t> last_rows;
    int pieces = 1;
    bool operator==(const Shape&) const = default;
};

/// By microbatch and name; of actions of the same name in the program's order.
using Shapes = std::multimap<std::pair<uint32_t, std::string>, Shape>;

Shapes shapes_of(const Program& program) {
    Shapes shapes;
    for (const Action& action : program.actions) {
        const bool is_pass = action.what == Do::pass;
        if (is_pass && traits(program.passes[action.item].op).of_step) continue;
        const uint32_t microbatch = is_pass ? program.passes[action.item].microbatch : action.item;
        Shape shape{.operands = {}, .first_rows = {}, .last_rows = {}, .pieces = action.pieces};
        for (const uint32_t operand : program.operands_of(action)) {
            shape.operands.push_back(operand == kNoBuffer ? 0 : program.buffers[operand].bytes);
        }
        const bool reduces = action.what == Do::all_to_all || action.what == Do::ordered_sum ||
                             action.what == Do::gather || action.what == Do::reduce;
        if (reduces) {
            shape.first_rows = program.reductions[action.reduction].first_row;
            shape.last_rows = program.reductions[action.reduction].last_row;
        }
        shapes.emplace(std::pair(microbatch, program.name_of(action)), std::move(shape));
    }
    return shapes;
}

/// The shapes of one microbatch.
Shapes of_microbatch(const Shapes& all, uint32_t microbatch) {
    Shapes some;
    for (const auto& [key, shape] : all) {
        if (key.first == microbatch) some.emplace(key, shape);
    }
    return some;
}

TEST(Lengths, GiveEveryMicrobatchWhatItHasInAStepOfItsLength) {
    std::mt19937 random(31);
    for (int i = 0; i < number_of_cases(300); ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const Schedule schedule = random_schedule(random, {.most_ranks = 8, .most_stages = 10});
        StepSizes sizes = random_sizes(schedule, random);
        add_random_lengths(sizes, schedule, random);
        const LowerOptions options{
            .receive_ahead = static_cast<int>(random() % 4),
            .reductions = random() % 2 == 0 ? Reductions::ordered : Reductions::native,
            .pieces = random() % 3 == 0 ? 4 : 1};
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs = lower(schedule, sizes, costs, options);
        std::vector<std::vector<Program>> of_length;
        for (size_t k = 0; k <= sizes.shorter.size(); ++k) {
            of_length.push_back(lower(schedule, of_one_length(sizes, k), costs, options));
        }
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            const Shapes mixed = shapes_of(programs[rank]);
            for (int j = 0; j < schedule.microbatches; ++j) {
                const auto microbatch = static_cast<uint32_t>(j);
                const Shapes alone = shapes_of(of_length[sizes.length_of(j)][rank]);
                ASSERT_EQ(of_microbatch(mixed, microbatch), of_microbatch(alone, microbatch))
                    << "rank " << rank << ", microbatch " << j;
                ASSERT_EQ(programs[rank].tokens[microbatch], sizes.tokens_of(j));
            }
        }
        // Every action has its place in time.
        ASSERT_GT(simulate(programs, costs).summary.makespan_ns, 0);
    }
}

TEST(Lengths, ThatNoMicrobatchHasLeaveTheProgramsAsTheyAre) {
    std::mt19937 random(37);
    for (const Kind& kind : every_kind(false)) {
        SCOPED_TRACE(name_of(kind));
        const Schedule schedule = generated(kind, 3, 6);
        StepSizes sizes = random_sizes(schedule, random);
        const TableCosts costs = uneven_costs(schedule);
        const uint64_t hash = lower(schedule, sizes, costs).front().hash;
        add_random_lengths(sizes, schedule, random);
        sizes.length_of_microbatch.clear();
        EXPECT_EQ(lower(schedule, sizes, costs).front().hash, hash);
        sizes.length_of_microbatch.assign(6, 0);
        EXPECT_EQ(lower(schedule, sizes, costs).front().hash, hash);
        sizes.length_of_microbatch[2] = 1;
        EXPECT_NE(lower(schedule, sizes, costs).front().hash, hash);
    }
}

/// Sizes that shrink with the tokens, as those of a model do.
LengthSizes of_tokens(const Schedule& schedule, int64_t tokens) {
    StepSizes sizes = sizes_for(schedule, tokens);
    return {.tokens = tokens, .stages = std::move(sizes.stages), .shards = std::move(sizes.shards)};
}

void expect_places_of(const Program& longest, const Program& program) {
    ASSERT_EQ(program.arena_bytes, longest.arena_bytes);
    ASSERT_EQ(program.live_peak_bytes, longest.live_peak_bytes);
    ASSERT_EQ(program.peak_by_purpose, longest.peak_by_purpose);
    ASSERT_EQ(program.buffers.size(), longest.buffers.size());
    for (size_t b = 0; b < program.buffers.size(); ++b) {
        ASSERT_EQ(program.buffers[b].offset, longest.buffers[b].offset);
        ASSERT_LE(program.buffers[b].bytes, longest.buffers[b].bytes);
    }
    ASSERT_EQ(program.actions.size(), longest.actions.size());
    for (size_t i = 0; i < program.actions.size(); ++i) {
        ASSERT_EQ(program.actions[i].order, longest.actions[i].order);
        ASSERT_EQ(program.name_of(program.actions[i]), longest.name_of(longest.actions[i]));
    }
    ASSERT_EQ(program.edges.size(), longest.edges.size());
    for (size_t i = 0; i < program.edges.size(); ++i) {
        ASSERT_EQ(program.edges[i].before, longest.edges[i].before);
        ASSERT_EQ(program.edges[i].after, longest.edges[i].after);
    }
}

// What is safe for the longest is then safe for parts of its buffers.
TEST(Lengths, TakeTheArenaOfTheLongestInItsOrderAndPlaces) {
    std::mt19937 random(41);
    for (const Kind& kind : every_kind(true)) {
        for (const int p : {2, 4, 8}) {
            SCOPED_TRACE(name_of(kind) + " p=" + std::to_string(p));
            const Schedule schedule = generated(kind, p, 2 * p + 1);
            StepSizes sizes = sizes_for(schedule, 96);
            const TableCosts costs = uneven_costs(schedule);
            const LowerOptions options{.pieces = p == 4 ? 2 : 1, .as_longest = true};
            const std::vector<Program> longest = lower(schedule, sizes, costs, options);
            sizes.shorter = {of_tokens(schedule, 64), of_tokens(schedule, 24)};
            for (int j = 0; j < schedule.microbatches; ++j) {
                sizes.length_of_microbatch.push_back(static_cast<int>(random() % 3));
            }
            const std::vector<Program> own =
                lower(schedule, sizes, costs, {.pieces = options.pieces});
            const std::vector<Program> programs = lower(schedule, sizes, costs, options);
            for (size_t rank = 0; rank < programs.size(); ++rank) {
                ASSERT_NO_FATAL_FAILURE(expect_places_of(longest[rank], programs[rank]));
                ASSERT_EQ(shapes_of(programs[rank]), shapes_of(own[rank])) << "rank " << rank;
                ASSERT_EQ(programs[rank].tokens, own[rank].tokens);
            }
        }
    }
}

std::string refusal_of_lengths(const Schedule& schedule, const StepSizes& sizes) {
    try {
        (void)lower(schedule, sizes, uneven_costs(schedule));
    } catch (const UsageError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Lengths, AreRefusedWhereTheyDoNotFitTheStep) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 3, 4);
    StepSizes good = sizes_for(schedule);
    const StepSizes half = sizes_for(schedule, good.tokens / 2);
    good.shorter = {{.tokens = half.tokens, .stages = half.stages, .shards = half.shards}};
    good.length_of_microbatch = {0, 1, 1, 0};
    EXPECT_EQ(refusal_of_lengths(schedule, good), "accepted");
    const auto refused = [&](const auto& change) {
        StepSizes sizes = good;
        change(sizes);
        return refusal_of_lengths(schedule, sizes);
    };
    EXPECT_THAT(refused([](StepSizes& s) { s.length_of_microbatch.pop_back(); }),
                HasSubstr("lengths are set for 3 microbatches, but the schedule has 4"));
    for (const int length : {-1, 2}) {
        EXPECT_THAT(refused([&](StepSizes& s) { s.length_of_microbatch[1] = length; }),
                    HasSubstr("a length other than those of StepSizes::shorter"));
    }
    EXPECT_THAT(refused([](StepSizes& s) { s.shorter[0].tokens = s.tokens + 1; }),
                HasSubstr("have 25 tokens, but those of the longest only 24"));
    EXPECT_THAT(refused([](StepSizes& s) { s.shorter[0].tokens = 0; }),
                HasSubstr("tokens must be at least 1"));
    StepSizes two_rows = good;
    two_rows.shorter[0].tokens = 2;
    EXPECT_THAT(
        [&] { (void)lower(schedule, two_rows, uneven_costs(schedule), {.as_longest = true}); },
        ::testing::ThrowsMessage<UsageError>(HasSubstr("2 tokens have fewer rows")));
    EXPECT_THAT(refused([](StepSizes& s) { s.shorter[0].stages.pop_back(); }),
                HasSubstr("2 stages, but the schedule has 3"));
    EXPECT_THAT(refused([](StepSizes& s) { s.shorter[0].shards.pop_back(); }),
                HasSubstr("2 output shards, but the schedule has 3 ranks"));
}

}  // namespace
}  // namespace vocabpipe::testing
