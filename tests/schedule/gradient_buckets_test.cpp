// SPDX-License-Identifier: Apache-2.0
// How the gradients of two replicas are added up: pieces of buckets, their order and their memory.
#include "tests/schedule/program_tools.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/lowered.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// The program of one of two replicas of one rank, with these buckets.
Program replica_with(std::vector<GradientBucket> buckets, int64_t piece, int replica = 1) {
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 1, 2);
    StepSizes sizes = sizes_for(schedule);
    sizes.report_bytes = 40;
    sizes.replicas = 2;
    sizes.buckets = {std::move(buckets)};
    TableCosts costs = uneven_costs(schedule);
    costs.slices = 2;
    return lower_world(schedule, sizes, costs, {.bucket_piece = piece}).of(replica);
}

/// Actions that deal pieces of buckets to the replicas, or add them up.
std::vector<uint32_t> of_buckets(const Program& program, Do what) {
    std::vector<uint32_t> found;
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        const Action& action = program.actions[i];
        if (action.what == what && program.groups[action.group].axis == Axis::data) {
            found.push_back(i);
        }
    }
    return found;
}

// Thirds of 1000 elements, 333 and 666, are cut at 320 and 640; those of 500, 166 and 333, at 160
// and 320. A cut at 0 leaves a piece out.
TEST(GradientBuckets, AreCutAtMultiplesOf32ElementsOfEveryBlock) {
    const auto pieces = [](int64_t first_end, int64_t second_end, int64_t piece) {
        const Program program = replica_with({{.first = {0, first_end, second_end}}}, piece);
        std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> found;
        for (const uint32_t sum : of_buckets(program, Do::ordered_sum)) {
            const Reduction& of = program.reductions[program.actions[sum].reduction];
            found.emplace_back(of.first_row, of.last_row);
        }
        std::ranges::sort(found);  // small ones may overtake others
        return found;
    };
    using Pieces = std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>;
    EXPECT_EQ(pieces(1000, 1500, 500), (Pieces{{{0, 1000}, {320, 1160}},
                                               {{320, 1160}, {640, 1320}},
                                               {{640, 1320}, {1000, 1500}}}));
    // Eighths of 40: only the seventh, 35, reaches a multiple of 32.
    EXPECT_EQ(pieces(40, 80, 10), (Pieces{{{0, 40}, {32, 72}}, {{32, 72}, {40, 80}}}));
    EXPECT_EQ(pieces(40, 80, 81), (Pieces{{{0, 40}, {40, 80}}}));
}

// Four pieces of each of two buckets, one after the other.
TEST(GradientBuckets, HaveRoomForTwoPiecesAtATime) {
    const Program program =
        replica_with({{.of = GradientBucket::Of::stage, .first = {0, 640, 1280}},
                      {.of = GradientBucket::Of::input, .first = {0, 640, 1280}}},
                     320);
    const std::vector<uint32_t> deals = of_buckets(program, Do::all_to_all);
    const std::vector<uint32_t> sums = of_buckets(program, Do::ordered_sum);
    ASSERT_EQ(deals.size(), 8U);
    ASSERT_EQ(sums.size(), 8U);
    const auto has_edge = [&](uint32_t before, uint32_t after) {
        return std::ranges::any_of(program.edges, [&](const Edge& edge) {
            return edge.before == before && edge.after == after;
        });
    };
    const auto input = [&](uint32_t action) {
        return program.operands_of(program.actions[action])[0];
    };
    const auto output = [&](uint32_t action) {
        return program.operands_of(program.actions[action])[1];
    };
    const auto last = [&](Op op) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            const Action& action = program.actions[i];
            if (action.what == Do::pass && pass_of(program, action).op == op) found = i;
        }
        return found;
    };
    for (size_t k = 0; k < deals.size(); ++k) {
        EXPECT_EQ(program.actions[deals[k]].item, k < 4 ? 0U : 1U);
        EXPECT_TRUE(has_edge(last(k < 4 ? Op::B : Op::G), deals[k])) << "gradients are whole " << k;
        EXPECT_EQ(output(deals[k]), input(sums[k]));
        EXPECT_TRUE(has_edge(deals[k], sums[k])) << k;
        for (size_t before = 0; before < k; ++before) {
            // What comes before that follows from the lane of sums.
            EXPECT_EQ(has_edge(sums[before], deals[k]), before + 2 == k) << before << " " << k;
        }
    }
    // Blocks of 160 elements from two members.
    uint64_t most = 0;
    for (uint32_t now = 0; now < program.actions.size(); ++now) {
        uint64_t alive = 0;
        for (const Buffer& buffer : program.buffers) {
            const bool here = buffer.purpose == Purpose::replicas &&
                              buffer.space == Buffer::Space::arena && buffer.born <= now &&
                              now <= buffer.dies;
            alive += here ? buffer.bytes : 0;
        }
        most = std::max(most, alive);
    }
    EXPECT_EQ(most, 2U * 2 * 160 * 4);
}

TEST(GradientBuckets, GiveTheirWeightsToAllAfterTheUpdate) {
    const Program program =
        replica_with({{.of = GradientBucket::Of::stage, .first = {0, 640, 1280}},
                      {.of = GradientBucket::Of::input, .first = {0, 640, 1280}}},
                     320);
    const std::vector<uint32_t> gathers = of_buckets(program, Do::all_gather_v);
    ASSERT_EQ(gathers.size(), 2U);
    for (const uint32_t gather : gathers) {
        EXPECT_EQ(program.actions[gather].item, gather == gathers[0] ? 0U : 1U);
        EXPECT_TRUE(std::ranges::any_of(program.edges, [&](const Edge& edge) {
            const Action& before = program.actions[edge.before];
            return edge.after == gather && before.what == Do::pass &&
                   pass_of(program, before).op == Op::Update;
        }));
    }
}

// The arena is the same for all, whoever has the larger block.
TEST(GradientBuckets, OfUnevenBlocksFitIntoTheArenaOfEveryReplica) {
    for (const int64_t border : {32'000, 96'000}) {
        for (const int slice : {0, 1}) {
            const Program program = replica_with({{.first = {0, border, 128'000}}}, 200'000, slice);
            const auto mine = static_cast<uint64_t>(slice == 0 ? border : 128'000 - border);
            const uint32_t sum = of_buckets(program, Do::ordered_sum).at(0);
            const Buffer& blocks = program.buffers[program.operands_of(program.actions[sum])[0]];
            EXPECT_EQ(blocks.bytes, 2 * 4 * mine) << border << " " << slice;
            EXPECT_LE(blocks.offset + blocks.bytes, program.arena_bytes) << border << " " << slice;
            EXPECT_GE(program.arena_bytes, 2U * 4 * 96'000) << border << " " << slice;
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
