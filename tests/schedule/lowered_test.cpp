// SPDX-License-Identifier: Apache-2.0
// Worlds of several slices as one pipeline and a mesh: the programs made from it fit each other,
// and what is proved of one pipeline is what a look at all programs finds.
#include "vocabpipe/lowered.hpp"

#include "src/schedule/lower/graph.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/schedule/rendezvous.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

/// A bucket per stage, which every rank of its place has, another of its experts, and one per
/// vocabulary shard, which tensor ranks share; in parts of different sizes.
void add_buckets(StepSizes& sizes, const Schedule& schedule) {
    const Mesh mesh = sizes.mesh(schedule.ranks);
    int64_t part = 32;
    const auto add = [&](int rank, GradientBucket bucket) {
        bucket.first = {0};
        for (int i = 0; i < mesh.size_of(bucket.axis); ++i) {
            bucket.first.push_back(bucket.first.back() + part);
            part = part % 96 + 32;
        }
        sizes.buckets[static_cast<size_t>(rank)].push_back(std::move(bucket));
    };
    using enum GradientBucket::Of;
    sizes.buckets.resize(static_cast<size_t>(schedule.ranks));
    for (int s = 0; s < schedule.stages; ++s) {
        const int rank = schedule.rank_of_stage[static_cast<size_t>(s)];
        add(rank, {.of = stage, .stage = s, .axis = Axis::data_tensor, .first = {}});
        if (sizes.expert > 1 && sizes.has_experts[static_cast<size_t>(s)]) {
            add(rank, {.of = stage, .stage = s, .axis = Axis::expert_data, .first = {}});
        }
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        if (schedule.input.rows(rank) > 0) add(rank, {.of = input, .first = {}});
        if (schedule.output.rows(rank) > 0) add(rank, {.of = output, .first = {}});
    }
}

/// Every other stage has experts.
StepSizes sizes_of_world(const Schedule& schedule, int replicas, int tensor, int expert = 1,
                         int context = 1) {
    StepSizes sizes = sizes_for(schedule);
    sizes.report_bytes = 40;
    sizes.replicas = replicas;
    sizes.tensor = tensor;
    sizes.expert = expert;
    sizes.context = context;
    for (int s = 0; s < schedule.stages; ++s) sizes.has_experts.push_back(s % 2 == 0);
    if (replicas * context * tensor > 1) add_buckets(sizes, schedule);
    return sizes;
}

Lowered copied(const Schedule& schedule, int replicas, int tensor = 1, int expert = 1,
               const LowerOptions& options = {}, int context = 1) {
    TableCosts costs = uneven_costs(schedule);
    costs.slices = replicas * context * tensor;
    return lower_world(schedule, sizes_of_world(schedule, replicas, tensor, expert, context), costs,
                       options);
}

/// Everything but the hash.
bool same(const Program& a, const Program& b) {
    const auto actions = [](const Program& program) {
        std::vector<std::tuple<Do, Lane, uint16_t, uint16_t, uint32_t, uint32_t>> all;
        for (const Action& x : program.actions) {
            all.emplace_back(x.what, x.lane, x.group, x.reduction, x.item, x.order);
        }
        return all;
    };
    const auto buffers = [](const Program& program) {
        std::vector<std::tuple<uint64_t, uint64_t, uint16_t, Buffer::Space>> all;
        for (const Buffer& x : program.buffers) {
            all.emplace_back(x.bytes, x.offset, x.bucket, x.space);
        }
        return all;
    };
    return a.rank == b.rank && a.ranks == b.ranks && a.passes == b.passes && a.groups == b.groups &&
           a.reductions == b.reductions && a.operands == b.operands && actions(a) == actions(b) &&
           buffers(a) == buffers(b);
}

TEST(Lowered, ProgramsOfAWorldFitEachOther) {
    for (const Kind& kind : every_kind(/*with_evaluation=*/false)) {
        SCOPED_TRACE(name_of(kind));
        const Schedule schedule = generated(kind, 3, 3);
        for (const Lowered& world :
             {copied(schedule, 2), copied(schedule, 4), copied(schedule, 1, 2),
              copied(schedule, 2, 2), copied(schedule, 1, 4), copied(schedule, 3, 2),
              copied(schedule, 2, 1, 2), copied(schedule, 4, 1, 2), copied(schedule, 2, 2, 2),
              copied(schedule, 2, 2, 4), copied(schedule, 1, 4, 2),
              copied(schedule, 1, 1, 1, {}, 3), copied(schedule, 2, 2, 4, {}, 2),
              copied(schedule, 3, 2, 2, {.bucket_piece = 40})}) {
            SCOPED_TRACE(std::to_string(world.mesh.data) + " x " +
                         std::to_string(world.mesh.tensor) + ", experts by " +
                         std::to_string(world.mesh.expert));
            EXPECT_EQ(find_deadlock(world), std::nullopt);
            const std::vector<Program> programs = world.all();
            ASSERT_EQ(static_cast<int>(programs.size()), world.mesh.size());
            EXPECT_EQ(find_deadlock(programs), std::nullopt);
            EXPECT_EQ(rendezvous_fault(programs), "");
        }
    }
}

TEST(Lowered, BoundariesAreOfOneToSixtyFourPieces) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 3, 4);
    const auto refusal = [&](int pieces) {
        try {
            (void)lower_world(schedule, sizes_for(schedule), uneven_costs(schedule),
                              {.pieces = pieces});
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_EQ(refusal(1), "accepted");
    for (const int pieces : {-1, 0, 65}) {
        EXPECT_EQ(refusal(pieces),
                  "lowering: pieces are " + std::to_string(pieces) + ", but must be 1 to 64");
    }
}

TEST(Lowered, RefusesMoreReductionsThanTheirNumbersHold) {
    lowering::Graph graph(1);
    for (int i = 0; i < UINT16_MAX; ++i) graph.add_reduction({});
    EXPECT_EQ(graph.add_reduction({}), UINT16_MAX);
    EXPECT_THROW(graph.add_reduction({}), UsageError);
}

TEST(Lowered, PiecesOfBucketsHaveEveryElementOnceAndLessMemory) {
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 1, 2);
    StepSizes sizes = sizes_of_world(schedule, 2, 1);
    sizes.buckets = {{{.first = {0, 100'000, 220'000}}}};
    TableCosts costs = uneven_costs(schedule);
    costs.slices = 2;
    const auto lowered_by = [&](int64_t piece) {
        return lower_world(schedule, sizes, costs, {.bucket_piece = piece}).of(1);
    };
    for (const auto& [piece, pieces] :
         {std::pair<int64_t, int>{500'000, 1}, {120'000, 1}, {110'000, 2}, {10'000, 22}}) {
        SCOPED_TRACE(piece);
        const Program program = lowered_by(piece);
        std::vector<int> summed(220'000, 0);
        int sums = 0;
        for (const Action& action : program.actions) {
            if (action.what != Do::ordered_sum) continue;
            const uint32_t sum = program.operands_of(action)[1];
            if (program.buffers[sum].space != Buffer::Space::bucket_gradients) continue;
            ++sums;
            const Reduction& of = program.reductions[action.reduction];
            for (int member = 0; member < 2; ++member) {
                const auto first = summed.begin() + of.first_row[static_cast<size_t>(member)];
                for (auto at = first; at < first + of.rows(member); ++at) ++*at;
            }
        }
        EXPECT_EQ(sums, pieces);
        EXPECT_EQ(std::ranges::count(summed, 1), 220'000);
        for (const Buffer& buffer : program.buffers) {
            if (buffer.purpose != Purpose::replicas || buffer.space != Buffer::Space::arena) {
                continue;
            }
            EXPECT_LE(buffer.bytes, static_cast<uint64_t>(2 * 4 * (120'000 / pieces + 32)));
        }
    }
    EXPECT_LT(lowered_by(10'000).arena_bytes, lowered_by(500'000).arena_bytes);
    EXPECT_THROW((void)lowered_by(0), UsageError);
}

TEST(Lowered, OneProgramIsThatOfAll) {
    const Schedule schedule = generated({"zb-v", VocabMode::two_barriers, false}, 4, 5);
    const Lowered world = copied(schedule, 3);
    const std::vector<Program> all = world.all();
    for (int rank = 0; rank < world.mesh.size(); ++rank) {
        const Program one = world.of(rank);
        EXPECT_EQ(one.rank, rank);
        EXPECT_EQ(one.hash, world.hash());
        EXPECT_TRUE(same(one, all[static_cast<size_t>(rank)]));
    }
    const Lowered alone = copied(schedule, 1);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        EXPECT_TRUE(same(alone.of(rank), alone.pipeline[static_cast<size_t>(rank)]));
    }
}

TEST(Lowered, PassesMeetTheLargerOfTheirStagesTeams) {
    const Schedule schedule = generated({"zb-h1", VocabMode::one_barrier, false}, 2, 2);
    for (const auto& [data, tensor, expert, context] :
         {std::tuple(4, 1, 2, 1), std::tuple(2, 2, 4, 1), std::tuple(1, 4, 2, 1),
          std::tuple(2, 2, 1, 1), std::tuple(1, 1, 1, 2), std::tuple(2, 2, 4, 2),
          std::tuple(2, 1, 4, 2), std::tuple(1, 2, 2, 3)}) {
        const Lowered world = copied(schedule, data, tensor, expert, {}, context);
        std::map<uint32_t, std::vector<int>> ranks;  // that have a pass at this order
        std::map<uint32_t, Pass> passes;
        for (const Program& program : world.all()) {
            for (const Action& action : program.actions) {
                if (action.what != Do::pass) continue;
                ranks[action.order].push_back(program.rank);
                passes[action.order] = program.passes[action.item];
            }
        }
        for (const auto& [order, met] : ranks) {
            const Pass& pass = passes[order];
            const bool stage =
                pass.op == Op::F || pass.op == Op::B || pass.op == Op::I || pass.op == Op::W;
            const bool experts = stage && pass.stage % 2 == 0 && expert > context * tensor;
            const Axis axis = experts ? Axis::expert
                              : stage ? Axis::context_tensor
                                      : Axis::pipeline;
            const Mesh::Place place = world.mesh.place(met.front());
            EXPECT_EQ(met, axis == Axis::pipeline ? std::vector{met.front()}
                                                  : world.mesh.ranks_along(axis, place))
                << to_string(pass) << " of " << data << " x " << context << " x " << tensor
                << ", experts by " << expert;
        }
    }
}

// Parts of a bucket lie end to end on the members of its axis, each on one of them.
TEST(Lowered, PartsOfABucketAreSpreadOverItsAxis) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 2, 2);
    for (const auto& [tensor, expert] : {std::pair(1, 1), std::pair(2, 1), std::pair(4, 1),
                                         std::pair(1, 2), std::pair(2, 2), std::pair(2, 4)}) {
        const Lowered world = copied(schedule, 4 / tensor, tensor, expert);
        const StepSizes sizes = sizes_of_world(schedule, 4 / tensor, tensor, expert);
        const std::vector<Program> programs = world.all();
        for (const Program& program : programs) {
            const int k = world.mesh.pipeline_rank(program.rank);
            const Mesh::Place place = world.mesh.place(program.rank);
            for (const Action& action : program.actions) {
                if (action.what != Do::all_gather_v) continue;
                const Buffer& mine = program.buffers[program.operands_of(action)[0]];
                const GradientBucket& bucket = sizes.buckets[static_cast<size_t>(k)][mine.bucket];
                const auto member = static_cast<size_t>(bucket.axis == Axis::data ? place.data
                                                        : bucket.axis == Axis::expert_data
                                                            ? world.mesh.slice(place) / expert
                                                            : world.mesh.slice(place));
                EXPECT_EQ(mine.offset, static_cast<uint64_t>(bucket.first[member]) * 4);
                EXPECT_EQ(mine.offset + mine.bytes,
                          static_cast<uint64_t>(bucket.first[member + 1]) * 4);
            }
        }
    }
}

TEST(Lowered, ProgramsHoldTheGroupsOfTheirRankAlone) {
    for (const Kind& kind : every_kind(/*with_evaluation=*/true)) {
        SCOPED_TRACE(name_of(kind));
        for (const Program& program : copied(generated(kind, 4, 3), 2).all()) {
            std::set<uint16_t> groups;
            std::set<uint16_t> reductions{kOutputReduction, kInputReduction, kOutputConversion};
            for (const Action& action : program.actions) {
                if (action.what == Do::pass) continue;
                groups.insert(action.group);
                reductions.insert(action.reduction);
            }
            EXPECT_EQ(groups.size(), program.groups.size());
            EXPECT_EQ(reductions.size(), program.reductions.size());
            for (const Group& group : program.groups) {
                EXPECT_EQ(std::ranges::count(group.ranks, program.rank), 1);
            }
        }
    }
}

TEST(Lowered, RoutesAreThoseOfAllPrograms) {
    for (const Kind& kind : every_kind(/*with_evaluation=*/false)) {
        SCOPED_TRACE(name_of(kind));
        const Schedule schedule = generated(kind, 3, 2);
        for (const Lowered& world : {copied(schedule, 1), copied(schedule, 4),
                                     copied(schedule, 2, 2), copied(schedule, 2, 2, 2)}) {
            std::set<Route> expected;
            const std::vector<Program> programs = world.all();
            for (const Program& program : programs) {
                for (const Action& action : program.actions) {
                    if (!has_participants(action) || action.what == Do::receive) continue;
                    const Group& group = program.groups[action.group];
                    if (group.ranks.size() == 1) continue;
                    expected.insert({action.what, action.lane, group.ranks, group.root});
                }
            }
            EXPECT_EQ(world.routes(), std::vector<Route>(expected.begin(), expected.end()));
            EXPECT_EQ(routes_of(programs), world.routes());
        }
    }
}

// --- the proof from one pipeline -----------------------------------------------------------------

std::string verdict(const Lowered& world) {
    return find_deadlock(world).value_or("");
}

Lowered usual_world() {
    return copied(generated({"1f1b", VocabMode::one_barrier, false}, 2, 2), 3);
}

/// The first action of a kind that slices do together.
Action& together(Program& program, Do what) {
    return *std::find_if(program.actions.begin(), program.actions.end(), [&](const Action& action) {
        return action.what == what && program.groups[action.group].axis != Axis::pipeline;
    });
}

TEST(Lowered, ProofSeesWhatSlicesDoNotAgreeOn) {
    ASSERT_EQ(verdict(usual_world()), "");

    Lowered sizes = usual_world();
    const Action& exchange = together(sizes.pipeline[1], Do::all_to_all);
    const uint32_t received = sizes.pipeline[1].operands_of(exchange)[1];
    for (SliceBlock& block : sizes.blocks[1]) {
        if (block.buffer == received) --block.copies;
    }
    EXPECT_THAT(verdict(sizes), HasSubstr("the blocks of the all_to_all at order"));

    Lowered reports = usual_world();
    const Action& gather = together(reports.pipeline[0], Do::all_gather);
    reports.pipeline[0].buffers[reports.pipeline[0].operands_of(gather)[1]].bytes -= 40;
    EXPECT_THAT(verdict(reports), HasSubstr("different sizes"));

    Lowered absent = usual_world();
    const uint16_t everyone = together(absent.pipeline[0], Do::all_gather).group;
    absent.pipeline[0].groups[everyone].ranks = {0};
    EXPECT_THAT(verdict(absent), AnyOf(HasSubstr("disagree"), HasSubstr("missing")));

    Lowered axes = usual_world();
    axes.pipeline[0].groups[everyone].axis = Axis::pipeline;
    EXPECT_THAT(verdict(axes), HasSubstr("in the all_gather at order"));

    Lowered pieces = usual_world();
    together(pieces.pipeline[0], Do::all_to_all).what = Do::all_gather_v;
    EXPECT_THAT(verdict(pieces), HasSubstr("all_gather_v"));
}

/// Breaks something that all slices have in common, or changes what makes no difference.
void mutate(Lowered& world, std::mt19937& random) {
    const size_t k = random() % world.pipeline.size();
    Program& program = world.pipeline[k];
    const auto count = static_cast<uint32_t>(program.actions.size());
    Action& action = program.actions[random() % count];
    switch (random() % 6) {
        case 0:
            program.edges.push_back(
                {static_cast<uint32_t>(random() % count), static_cast<uint32_t>(random() % count)});
            break;
        case 1:
            if (!program.edges.empty()) {
                program.edges.erase(program.edges.begin() +
                                    static_cast<std::ptrdiff_t>(random() % program.edges.size()));
            }
            break;
        case 2:
            std::swap(action, program.actions[random() % count]);
            break;
        case 3:
            if (has_participants(action)) {
                action.group = static_cast<uint16_t>(random() % program.groups.size());
            }
            break;
        case 4: {
            Buffer& buffer = program.buffers[random() % program.buffers.size()];
            if (buffer.purpose != Purpose::replicas) buffer.bytes += 4;
            break;
        }
        case 5:
            if (!world.blocks[k].empty()) {
                world.blocks[k][random() % world.blocks[k].size()].width =
                    random() % 2 == 0 ? 2 : 4;
            }
            break;
    }
}

TEST(Lowered, ProofOfOnePipelineIsThatOfAllPrograms) {
    std::mt19937 random(23);
    int refused = 0;
    int accepted = 0;
    const auto kinds = every_kind(/*with_evaluation=*/false);
    for (int i = 0; i < 1500; ++i) {
        const Kind& kind = kinds[random() % kinds.size()];
        if (kind.family == "v-search") continue;  // slower to make, and like the other V families
        const int slices = 2 + static_cast<int>(random() % 3);
        const int tensor = slices % 2 == 0 ? 1 << random() % 3 : 1;
        const int expert = slices % 2 == 0 ? 1 << random() % 3 : 1;
        Lowered world = copied(generated(kind, 2, 1 + static_cast<int>(random() % 2)),
                               std::max(slices / tensor, 1), std::min(tensor, slices),
                               std::min(expert, slices));
        const int mutations = 1 + static_cast<int>(random() % 2);
        for (int k = 0; k < mutations; ++k) mutate(world, random);
        const std::string found = verdict(world);
        const std::string whole = find_deadlock(world.all()).value_or("");
        ASSERT_EQ(found.empty(), whole.empty())
            << "case " << i << " " << name_of(kind) << "\nfrom one pipeline: " << found
            << "\nfrom all programs: " << whole;
        ++(found.empty() ? accepted : refused);
    }
    EXPECT_GT(refused, 300);
    EXPECT_GT(accepted, 300);
}

}  // namespace
}  // namespace vocabpipe::testing
