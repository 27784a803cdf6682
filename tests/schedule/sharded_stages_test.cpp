// SPDX-License-Identifier: Apache-2.0
// Stages of which ranks keep their own part alone: when their weights are gathered, how long they
// stay, and how their gradients are added up.
#include "tests/schedule/program_tools.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/lowered.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int kReplicas = 2;
constexpr int64_t kElements = 640;  // of a bucket; each stage has two

/// Sizes of a step of two replicas that share gradients, or weights as well, of every stage.
StepSizes sharded_sizes(const Schedule& schedule, bool weights, bool w_reads = false) {
    StepSizes sizes = sizes_for(schedule);
    sizes.weight_pass_reads_weights = w_reads;
    sizes.report_bytes = schedule.forward_only() ? 0 : 40;
    sizes.replicas = kReplicas;
    sizes.buckets.resize(static_cast<size_t>(schedule.ranks));
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const int rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
        for (const int64_t elements : {kElements, 2 * kElements}) {
            sizes.buckets[static_cast<size_t>(rank)].push_back(
                {.stage = stage,
                 .first = {0, elements / 2, elements},
                 .shards_gradients = true,
                 .shards_weights = weights});
        }
    }
    return sizes;
}

struct Case {
    Schedule schedule;
    ZeroOptions zero;
    bool weights = true;
    bool w_reads = false;  ///< StepSizes::weight_pass_reads_weights
};

Lowered lowered_world(const Case& of) {
    TableCosts costs = uneven_costs(of.schedule);
    costs.slices = kReplicas;
    return lower_world(of.schedule, sharded_sizes(of.schedule, of.weights, of.w_reads), costs,
                       {.bucket_piece = 320, .zero = of.zero});
}

bool writes_gradients(Op op) {
    return op == Op::B || op == Op::W;
}

/// The buffers of an action for this purpose.
std::vector<uint32_t> buffers_for(const Program& program, const Action& action, Purpose purpose) {
    std::vector<uint32_t> found;
    for (const uint32_t buffer : program.operands_of(action)) {
        if (buffer != kNoBuffer && program.buffers[buffer].purpose == purpose) {
            found.push_back(buffer);
        }
    }
    return found;
}

/// Stages of a rank's passes that `uses` chooses, in order: one entry for consecutive passes of one
/// stage, or with ReshardAfter::step one for each stage.
template <typename Uses>
std::vector<int> uses_of(const Program& program, ReshardAfter after, Uses&& uses) {
    std::vector<int> all;
    for (const Pass& pass : program.passes) {
        if (!uses(pass.op)) continue;
        const int stage = pass.stage;
        const bool known = after == ReshardAfter::step ? std::ranges::count(all, stage) > 0
                                                       : !all.empty() && all.back() == stage;
        if (!known) all.push_back(stage);
    }
    return all;
}

void expect_gathers(const Program& program, const ZeroOptions& zero, bool w_reads) {
    const auto reads_weights = [=](Op op) {
        return op == Op::F || op == Op::R || op == Op::B || op == Op::I || (w_reads && op == Op::W);
    };
    const std::vector<int> uses = uses_of(program, zero.reshard_after, reads_weights);
    std::map<uint32_t, std::vector<uint32_t>> users;  // by buffer of gathered weights
    size_t gathers = 0;
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        const Action& action = program.actions[i];
        const std::vector<uint32_t> weights = buffers_for(program, action, Purpose::stage_weights);
        for (const uint32_t buffer : weights) users[buffer].push_back(i);
        if (action.what == Do::all_gather_v) {
            ++gathers;
            EXPECT_EQ(weights.size(), 1U);
            continue;
        }
        const bool reads = action.what == Do::pass && reads_weights(pass_of(program, action).op);
        ASSERT_EQ(weights.size(), reads ? 2U : 0U) << program.name_of(action);
        for (const uint32_t buffer : weights) {
            const Program& of = program;
            EXPECT_EQ(of.buffers[buffer].space, Buffer::Space::arena);
            // The two buckets of its own stage.
            const int stage = pass_of(program, action).stage;
            const auto passes_before = std::ranges::count_if(users[buffer], [&](uint32_t user) {
                const Action& other = program.actions[user];
                return other.what == Do::pass && pass_of(program, other).stage != stage;
            });
            EXPECT_EQ(passes_before, 0);
        }
    }
    EXPECT_EQ(gathers, 2 * uses.size());
    EXPECT_EQ(users.size(), gathers);
    for (const auto& [buffer, of] : users) {
        EXPECT_EQ(program.actions[of.front()].what, Do::all_gather_v);
        EXPECT_EQ(program.buffers[buffer].born, of.front());
        EXPECT_EQ(program.buffers[buffer].dies, of.back());
    }
    if (zero.reshard_after == ReshardAfter::step) return;
    // No gather begins before the use that is `gather_ahead` + 1 before its own is over.
    const HappensBefore order(program);
    std::vector<std::pair<uint32_t, uint32_t>> by_pass;  // last pass of a use, its gather
    for (const auto& [buffer, of] : users) by_pass.emplace_back(of.back(), of.front());
    std::ranges::sort(by_pass);
    const auto ahead = static_cast<size_t>(zero.gather_ahead) + 1;
    for (size_t i = 2 * ahead; i < by_pass.size(); ++i) {
        EXPECT_TRUE(order.ordered(by_pass[(i / 2 - ahead) * 2].first, by_pass[i].second)) << i;
    }
}

void expect_sums(const Program& program, const ZeroOptions& zero) {
    const std::vector<int> uses = uses_of(program, zero.reshard_after, writes_gradients);
    std::set<uint32_t> begun;                               // buffers that a pass has set
    std::map<std::pair<uint32_t, int64_t>, uint32_t> last;  // bucket and place in it: its last sum
    const HappensBefore order(program);
    size_t sums = 0;
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        const Action& action = program.actions[i];
        const std::vector<uint32_t> gradients =
            buffers_for(program, action, Purpose::stage_gradients);
        if (action.what == Do::pass && traits(pass_of(program, action).op).has_stage) {
            const bool writes = writes_gradients(pass_of(program, action).op);
            ASSERT_EQ(gradients.size(), writes ? 2U : 0U) << program.name_of(action);
            for (const uint32_t buffer : gradients) {
                EXPECT_EQ(action.accumulate, begun.contains(buffer)) << program.name_of(action);
            }
            begun.insert(gradients.begin(), gradients.end());
        }
        if (action.what != Do::ordered_sum || program.groups[action.group].axis != Axis::data) {
            continue;
        }
        ++sums;
        const std::span<const uint32_t> operands = program.operands_of(action);
        const Buffer& own = program.buffers[operands[1]];
        EXPECT_EQ(own.space, Buffer::Space::own_gradients);
        const std::pair part(action.item, static_cast<int64_t>(own.offset));
        const auto before = last.find(part);
        ASSERT_EQ(operands.size(), before == last.end() ? 2U : 3U) << program.name_of(action);
        if (before != last.end()) {
            EXPECT_EQ(operands[2], operands[1]);
            EXPECT_TRUE(order.ordered(before->second, i));
        }
        last[part] = i;
    }
    // Buckets of 640 elements go in two pieces of 320, those of 1280 in four.
    EXPECT_EQ(sums, 6 * uses.size());
    EXPECT_EQ(begun.size(), 2 * uses.size());
}

std::vector<Case> cases(const Kind& kind) {
    std::vector<Case> all;
    for (const int ranks : {1, 2, 3}) {
        for (const ReshardAfter after : {ReshardAfter::use, ReshardAfter::step}) {
            for (const int ahead : {0, 1, 2}) {
                all.push_back({.schedule = generated(kind, ranks, 2 * ranks),
                               .zero = {.reshard_after = after, .gather_ahead = ahead},
                               .w_reads = ahead == 1});
            }
        }
    }
    return all;
}

class ShardedStages : public ::testing::TestWithParam<Kind> {};

TEST_P(ShardedStages, AreGatheredBeforeAndAddedUpAfterTheirPasses) {
    for (const Case& of : cases(GetParam())) {
        SCOPED_TRACE(::testing::Message()
                     << "p=" << of.schedule.ranks << " " << to_string(of.zero.reshard_after)
                     << " ahead " << of.zero.gather_ahead);
        const Lowered world = lowered_world(of);
        EXPECT_EQ(find_deadlock(world), std::nullopt);
        EXPECT_EQ(find_deadlock(world.all()), std::nullopt);
        for (const Program& program : world.all()) {
            expect_gathers(program, of.zero, of.w_reads);
            if (!of.schedule.forward_only()) expect_sums(program, of.zero);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Every, ShardedStages, ::testing::ValuesIn(every_kind(true)),
                         [](const auto& info) { return name_of(info.param); });

TEST(ShardedGradients, LeaveWeightsWhole) {
    const Kind kind{"interleaved", VocabMode::none, false};
    const Lowered world = lowered_world({generated(kind, 2, 4), {}, false});
    for (const Program& program : world.all()) {
        expect_sums(program, {});
        size_t gathers = 0;
        for (const Action& action : program.actions) {
            EXPECT_TRUE(buffers_for(program, action, Purpose::stage_weights).empty());
            gathers += action.what == Do::all_gather_v ? 1 : 0;
        }
        EXPECT_EQ(gathers, 4U);  // after the update, of two buckets of two stages
    }
}

/// Bytes of weights alive at a time, at most.
uint64_t most_weights(const Program& program) {
    uint64_t most = 0;
    for (uint32_t now = 0; now < program.actions.size(); ++now) {
        uint64_t alive = 0;
        for (const Buffer& buffer : program.buffers) {
            const bool here = buffer.purpose == Purpose::stage_weights && buffer.born <= now &&
                              now <= buffer.dies;
            alive += here ? buffer.bytes : 0;
        }
        most = std::max(most, alive);
    }
    return most;
}

TEST(ShardedWeights, TakeTheMemoryOfTheStagesInUseAndAhead) {
    const Kind kind{"looped-bfs", VocabMode::none, false};
    const Schedule schedule = make_schedule("looped-bfs", {.ranks = 1,
                                                           .microbatches = 2,
                                                           .vocab_mode = VocabMode::none,
                                                           .vocab_size = 100,
                                                           .rule = {.chunks = 8}});
    const uint64_t stage = 3 * kElements * 4;
    for (const int ahead : {0, 1, 3}) {
        const Lowered world = lowered_world({schedule, {.gather_ahead = ahead}});
        EXPECT_EQ(most_weights(world.pipeline.front()), static_cast<uint64_t>(ahead + 1) * stage);
    }
    const Lowered kept = lowered_world({schedule, {.reshard_after = ReshardAfter::step}});
    EXPECT_EQ(most_weights(kept.pipeline.front()), 8 * stage);
}

TEST(ShardedWeights, AreGatheredWhileOtherPassesRun) {
    const Schedule schedule = make_schedule("looped-bfs", {.ranks = 1,
                                                           .microbatches = 4,
                                                           .vocab_mode = VocabMode::none,
                                                           .vocab_size = 100,
                                                           .rule = {.chunks = 6}});
    TableCosts costs = TableCosts::uniform(1, 6, 1'000'000, 2'000'000, 1);
    costs.slices = kReplicas;
    costs.latency_ns = 500'000;  // a gather or sum takes less than the passes of a stage
    const auto step_ns = [&](int ahead) {
        const Lowered world = lower_world(schedule, sharded_sizes(schedule, true), costs,
                                          {.zero = {.gather_ahead = ahead}});
        return simulate(world, costs).summary.step_ns;
    };
    // Alone: two gathers of each of 11 uses, the last forward and first backward being one.
    EXPECT_GE(step_ns(0) - step_ns(1), 10 * 500'000);
    EXPECT_LT(step_ns(1), 6 * 4 * 3'000'000 + 6 * 500'000);
}

TEST(ShardedStagesOptions, RefuseBucketsThatNoStageOfTheRankHas) {
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 2, 2);
    TableCosts costs = uneven_costs(schedule);
    costs.slices = kReplicas;
    const auto refusal = [&](auto&& change) -> std::string {
        StepSizes sizes = sharded_sizes(schedule, true);
        change(sizes.buckets.front().front());
        try {
            (void)lower_world(schedule, sizes, costs);
        } catch (const UsageError& error) {
            return error.what();
        }
        return "none";
    };
    using ::testing::HasSubstr;
    EXPECT_THAT(refusal([](GradientBucket& b) { b.of = GradientBucket::Of::output; }),
                HasSubstr("must be of a stage of its rank"));
    EXPECT_THAT(refusal([](GradientBucket& b) { b.stage = 1; }),
                HasSubstr("must be of a stage of its rank"));
    EXPECT_THAT(refusal([](GradientBucket& b) { b.shards_gradients = false; }),
                HasSubstr("some buckets of stage 0 and not of others"));
    EXPECT_EQ(refusal([](GradientBucket& b) { b.shards_weights = false; }), "none");
}

TEST(ShardedStagesOptions, RefuseToGatherBehindTheUse) {
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 2, 2);
    try {
        lowered_world({schedule, {.gather_ahead = -1}});
        ADD_FAILURE() << "accepted";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("gathered -1 stages ahead"));
    }
    EXPECT_THROW((void)reshard_after_from("never"), UsageError);
    EXPECT_EQ(reshard_after_from("step"), ReshardAfter::step);
}

}  // namespace
}  // namespace vocabpipe::testing
