// SPDX-License-Identifier: Apache-2.0
// What lowering infers, checked against rules written down here for every family, vocabulary mode
// and size, and for random schedules with any placement.
#include "vocabpipe/lower.hpp"

#include "tests/schedule/count_actions.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/support/brute_force_checker.hpp"
#include "tests/support/full_run.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/validate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

// --- the rules -----------------------------------------------------------------------------------

/// How many actions of each kind a step has, from the shape of the schedule.
ActionCounts expected_counts(const Schedule& s, const StepSizes& sizes) {
    const bool backward = !s.forward_only();
    const int64_t m = s.microbatches;
    const auto owners = [&](const ShardMap& map) {
        std::set<int> ranks;
        for (int rank = 0; rank < s.ranks; ++rank) {
            if (map.first_row[static_cast<size_t>(rank)] <
                map.first_row[static_cast<size_t>(rank) + 1]) {
                ranks.insert(rank);
            }
        }
        return ranks;
    };
    const std::set<int> in = owners(s.input);
    const std::set<int> out = owners(s.output);
    const int first = s.rank_of_stage.front();
    const int last = s.rank_of_stage.back();
    const auto ranks_with = [](std::set<int> ranks, int root) {
        ranks.insert(root);
        return static_cast<int64_t>(ranks.size());
    };
    const auto size = [](const std::set<int>& ranks) { return static_cast<int64_t>(ranks.size()); };

    ActionCounts n;
    for (const auto& list : s.passes) n[Do::pass] += static_cast<int64_t>(list.size());
    for (size_t stage = 1; stage < s.rank_of_stage.size(); ++stage) {
        if (s.rank_of_stage[stage] == s.rank_of_stage[stage - 1]) continue;
        n[Do::send] += m * (backward ? 2 : 1);
        n[Do::receive] += m * (backward ? 2 : 1);
    }
    if (ranks_with(out, last) > 1) n[Do::broadcast] += m * ranks_with(out, last);
    if (out.size() > 1) n[Do::all_gather] += m * size(out);
    n[Do::combine_softmax] += m * size(out);
    if (in.size() > 1) n[Do::all_to_all] += m * size(in), n[Do::ordered_sum] += m * size(in);
    if (ranks_with(in, first) > 1) n[Do::gather] += m * ranks_with(in, first);
    if (backward) {
        n[Do::ordered_sum] += m * size(out);
        if (out.size() > 1) n[Do::all_to_all] += m * size(out);
        if (ranks_with(out, last) > 1) n[Do::gather] += m * ranks_with(out, last);
        if (ranks_with(in, first) > 1) n[Do::broadcast] += m * ranks_with(in, first);
        if (sizes.report_bytes > 0) {
            n[Do::pass] += 2 * s.ranks;
            if (s.ranks > 1) n[Do::all_gather] += s.ranks;
        }
    }
    std::erase_if(n, [](const auto& entry) { return entry.second == 0; });
    return n;
}

/// "2F1 -> 3F1 of rank 0 to rank 2": a value that crosses ranks.
using Crossing = std::tuple<std::string, std::string, int, int>;

std::multiset<Crossing> expected_crossings(const Schedule& s) {
    std::multiset<Crossing> all;
    for (int j = 0; j < s.microbatches; ++j) {
        for (int stage = 0; stage + 1 < s.stages; ++stage) {
            const int low = s.rank_of_stage[static_cast<size_t>(stage)];
            const int high = s.rank_of_stage[static_cast<size_t>(stage) + 1];
            if (low == high) continue;
            const std::string a = std::to_string(stage);
            const std::string b = std::to_string(stage + 1);
            const std::string mb = std::to_string(j);
            all.insert({a + "F" + mb, b + "F" + mb, low, high});
            if (!s.forward_only()) all.insert({b + "B" + mb, a + "B" + mb, high, low});
        }
    }
    return all;
}

/// The pass of a rank that writes (as its output) or reads (as its input) a message's buffer. I
/// counts as B, since either hands the gradient on.
std::string pass_at_end_of_message(const Program& program, uint32_t buffer, bool writes) {
    std::string found;
    for (const Action& action : program.actions) {
        if (action.what != Do::pass) continue;
        Pass pass = pass_of(program, action);
        if (pass.op != Op::F && pass.op != Op::B && pass.op != Op::I) continue;
        const auto operands = program.operands_of(action);
        const size_t output = pass.op == Op::F ? 1 : 4;
        if (operands[writes ? output : 0] != buffer) continue;
        if (!found.empty()) return "two passes";
        if (pass.op == Op::I) pass.op = Op::B;
        found = to_string(pass);
    }
    return found;
}

std::multiset<Crossing> crossings_in(const std::vector<Program>& programs) {
    struct Ends {
        std::string producer = "nobody";
        std::string consumer = "nobody";
        int source = -1;
        int destination = -1;
        int sends = 0;
        int receives = 0;
    };
    std::map<uint32_t, Ends> messages;
    for (const Program& program : programs) {
        for (const Action& action : program.actions) {
            if (action.what != Do::send && action.what != Do::receive) continue;
            Ends& ends = messages[action.order];
            const Group& group = program.groups[action.group];
            EXPECT_EQ(group.ranks.size(), 2U);
            const uint32_t buffer = program.operands_of(action)[0];
            if (action.what == Do::send) {
                ++ends.sends;
                ends.source = program.rank;
                EXPECT_EQ(group.ranks[0], program.rank);
                ends.producer = pass_at_end_of_message(program, buffer, true);
            } else {
                ++ends.receives;
                ends.destination = program.rank;
                EXPECT_EQ(group.ranks[1], program.rank);
                ends.consumer = pass_at_end_of_message(program, buffer, false);
            }
        }
    }
    std::multiset<Crossing> all;
    for (const auto& [order, ends] : messages) {
        EXPECT_EQ(ends.sends, 1) << "order " << order;
        EXPECT_EQ(ends.receives, 1) << "order " << order;
        EXPECT_NE(ends.source, ends.destination) << "order " << order;
        all.insert({ends.producer, ends.consumer, ends.source, ends.destination});
    }
    return all;
}

/// Order of the messages of one channel, as seen by one of its ends.
std::vector<uint32_t> channel_order(const Program& program, Do end, int source, int destination,
                                    Lane lane) {
    std::vector<uint32_t> orders;
    for (const Action& action : program.actions) {
        if (action.what != end || action.lane != lane) continue;
        if (program.groups[action.group].ranks == std::vector<int>{source, destination}) {
            orders.push_back(action.order);
        }
    }
    return orders;
}

using Collective = std::tuple<Do, uint32_t, uint32_t, int>;  // what, order, microbatch, reduction

std::map<std::pair<std::vector<int>, int>, std::vector<Collective>> collectives_of(
    const Program& program) {
    std::map<std::pair<std::vector<int>, int>, std::vector<Collective>> by_group;
    for (const Action& action : program.actions) {
        if (!has_participants(action) || action.what == Do::send || action.what == Do::receive) {
            continue;
        }
        const Group& group = program.groups[action.group];
        by_group[{group.ranks, group.root}].emplace_back(action.what, action.order, action.item,
                                                         action.reduction);
    }
    return by_group;
}

/// What an edge has to carry: passes start after what made their inputs.
void expect_inputs_precede_uses(const Program& program) {
    const HappensBefore before(program);
    const auto users = users_of_buffers(program);
    for (size_t buffer = 0; buffer < users.size(); ++buffer) {
        ASSERT_FALSE(users[buffer].empty()) << "buffer " << buffer << " is used by nobody";
        const uint32_t writer = users[buffer].front();
        ASSERT_EQ(program.buffers[buffer].born, writer);
        ASSERT_EQ(program.buffers[buffer].dies, users[buffer].back());
        if (program.buffers[buffer].space != Buffer::Space::arena) continue;
        for (const uint32_t user : users[buffer]) {
            if (user == writer) continue;
            ASSERT_TRUE(before.ordered(writer, user))
                << program.name_of(program.actions[writer]) << " and "
                << program.name_of(program.actions[user]);
        }
    }
}

/// Receives are not tied to anything later than what runs before the `ahead`-th pass before the one
/// that uses them, other than by memory, and are tied to that one. R does not count.
void expect_receives_posted_ahead(const Program& program, int ahead) {
    std::vector<uint32_t> compute;
    std::map<uint32_t, int> position;
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        if (program.actions[i].lane != Lane::compute) continue;
        position[i] = static_cast<int>(compute.size());
        compute.push_back(i);
    }
    const auto users = users_of_buffers(program);
    const auto overlap = [&](uint32_t a, uint32_t b) {
        const Buffer& x = program.buffers[a];
        const Buffer& y = program.buffers[b];
        return x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
    };
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        if (program.actions[i].what != Do::receive) continue;
        const uint32_t buffer = program.operands_of(program.actions[i])[0];
        const uint32_t consumer = users[buffer].at(1);
        ASSERT_EQ(program.actions[consumer].what, Do::pass);
        int first = position.at(consumer);
        for (int left = ahead; left > 0 && first >= 0;) {
            --first;
            if (first < 0) break;
            const Action& between = program.actions[compute[static_cast<size_t>(first)]];
            left -= pass_of(program, between).op == Op::R ? 0 : 1;
        }
        const int earliest = first - 1;
        bool tied = false;
        for (const Edge& edge : program.edges) {
            if (edge.after != i || !position.contains(edge.before)) continue;
            if (position.at(edge.before) == earliest) tied = true;
            if (position.at(edge.before) <= earliest) continue;
            bool memory = false;
            for (const uint32_t operand : program.operands_of(program.actions[edge.before])) {
                if (operand != kNoBuffer && overlap(operand, buffer)) memory = true;
            }
            ASSERT_TRUE(memory) << program.name_of(program.actions[i]) << " waits for "
                                << program.name_of(program.actions[edge.before]);
        }
        ASSERT_EQ(tied, earliest >= 0) << program.name_of(program.actions[i]);
    }
}

/// `accumulate` is false on the first pass of the step that writes each weight's gradient.
void expect_first_writers_set(const Program& program) {
    std::set<std::pair<char, int>> begun;
    for (const Action& action : program.actions) {
        if (action.what != Do::pass) {
            ASSERT_TRUE(action.accumulate);
            continue;
        }
        const Pass& pass = pass_of(program, action);
        std::pair<char, int> weight{'-', 0};
        if (pass.op == Op::B || pass.op == Op::W) weight = {'w', pass.stage};
        if (pass.op == Op::G) weight = {'i', 0};
        if (pass.op == Op::T) weight = {'o', 0};
        ASSERT_EQ(!action.accumulate, weight.first != '-' && begun.insert(weight).second)
            << to_string(pass);
    }
}

void expect_sound(const Schedule& schedule, const StepSizes& sizes,
                  const std::vector<Program>& programs, int receive_ahead) {
    ASSERT_EQ(programs.size(), static_cast<size_t>(schedule.ranks));
    const auto stuck = find_deadlock(programs);
    ASSERT_FALSE(stuck.has_value()) << *stuck;
    ASSERT_EQ(count_actions(programs), expected_counts(schedule, sizes));
    ASSERT_EQ(crossings_in(programs), expected_crossings(schedule));
    for (const Program& program : programs) {
        ASSERT_EQ(program.hash, programs.front().hash);
        ASSERT_EQ(program.ranks, schedule.ranks);
        ASSERT_EQ(program.microbatches, schedule.microbatches);
        ASSERT_EQ(&program, &programs[static_cast<size_t>(program.rank)]);

        // One global order: its projection, and the schedule's own order of passes.
        std::vector<Pass> passes;
        for (size_t i = 0; i < program.actions.size(); ++i) {
            if (i > 0) {
                ASSERT_LT(program.actions[i - 1].order, program.actions[i].order);
            }
            if (program.actions[i].what != Do::pass) continue;
            const Pass& pass = pass_of(program, program.actions[i]);
            if (!traits(pass.op).of_step) passes.push_back(pass);
        }
        ASSERT_EQ(passes, schedule.passes[static_cast<size_t>(program.rank)]);
        expect_inputs_precede_uses(program);
        expect_receives_posted_ahead(program, receive_ahead);
        expect_first_writers_set(program);

        // Collectives come in one order on all members.
        for (const auto& [group, mine] : collectives_of(program)) {
            for (const int rank : group.first) {
                auto theirs = collectives_of(programs[static_cast<size_t>(rank)]);
                ASSERT_EQ(theirs[group], mine) << "ranks " << program.rank << " and " << rank;
            }
        }
        for (int peer = 0; peer < schedule.ranks; ++peer) {
            for (const Lane lane : {Lane::forward, Lane::backward}) {
                ASSERT_EQ(channel_order(program, Do::send, program.rank, peer, lane),
                          channel_order(programs[static_cast<size_t>(peer)], Do::receive,
                                        program.rank, peer, lane));
            }
        }
    }
}

// --- every family, mode and size
// --------------------------------------------------------------------

class EveryLoweredSchedule : public ::testing::TestWithParam<Kind> {};

TEST_P(EveryLoweredSchedule, IsProvenSimulatesAndFollowsTheRules) {
    for (int p = 1; p <= 8; ++p) {
        for (int m = 1; m <= 3 * p; ++m) {
            // Fewer than ranks, as many, more, and whole rounds.
            if (!full_run() && p > 4 && m > 1 && std::abs(m - p) > 1 && m % p != 0) continue;
            SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
            const Schedule schedule = generated(GetParam(), p, m);
            ASSERT_FALSE(find_violation(schedule).has_value());
            const StepSizes sizes = sizes_for(schedule);
            const TableCosts costs = uneven_costs(schedule);
            const std::vector<Program> programs = lower(schedule, sizes, costs);
            ASSERT_NO_FATAL_FAILURE(expect_sound(schedule, sizes, programs, 1));

            const Simulation simulation = simulate(programs, costs);
            size_t actions = 0;
            for (const Program& program : programs) actions += program.actions.size();
            ASSERT_EQ(simulation.timeline.spans.size(), actions);
        }
    }
}

TEST_P(EveryLoweredSchedule, FollowsTheRulesWithFewerRowsThanRanksAndReports) {
    for (const int64_t rows : {1, 2, 3}) {
        for (int p = 1; p <= 5; ++p) {
            for (const int m : {1, 2, p + 2}) {
                SCOPED_TRACE("V=" + std::to_string(rows) + " p=" + std::to_string(p) +
                             " m=" + std::to_string(m));
                const Schedule schedule = generated(GetParam(), p, m, rows);
                StepSizes sizes = sizes_for(schedule);
                sizes.report_bytes = 64;
                ASSERT_NO_FATAL_FAILURE(expect_sound(
                    schedule, sizes, lower(schedule, sizes, uneven_costs(schedule)), 1));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, EveryLoweredSchedule, ::testing::ValuesIn(every_kind(true)),
                         [](const auto& info) { return name_of(info.param); });

TEST(Lowering, PostsReceivesAsManyPassesAheadAsAsked) {
    for (const int ahead : {0, 1, 2, 3, 100}) {
        for (const Kind& kind : every_kind(false)) {
            SCOPED_TRACE(name_of(kind) + " ahead " + std::to_string(ahead));
            const Schedule schedule = generated(kind, 4, 7);
            const StepSizes sizes = sizes_for(schedule);
            const std::vector<Program> programs =
                lower(schedule, sizes, uneven_costs(schedule), {.receive_ahead = ahead});
            ASSERT_NO_FATAL_FAILURE(expect_sound(schedule, sizes, programs, ahead));
        }
    }
}

TEST(Lowering, FollowsTheRulesForSchedulesThatNobodyDesigned) {
    std::mt19937 random(3);
    for (int i = 0; i < 400; ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const Schedule schedule = random_schedule(random, {.most_ranks = 5, .most_stages = 8});
        ASSERT_EQ(brute_force_fault(schedule), "");
        const StepSizes sizes = random_sizes(schedule, random);
        const int ahead = static_cast<int>(random() % 3);
        const std::vector<Program> programs =
            lower(schedule, sizes, uneven_costs(schedule), {.receive_ahead = ahead});
        ASSERT_NO_FATAL_FAILURE(expect_sound(schedule, sizes, programs, ahead));
    }
}

TEST(Lowering, SendsNothingBetweenStagesOfOneRank) {
    Schedule schedule;
    schedule.ranks = 2;
    schedule.stages = 4;
    schedule.microbatches = 1;
    schedule.rank_of_stage = {0, 1, 1, 0};  // V
    schedule.input = ShardMap::whole(10, 2, 0);
    schedule.output = ShardMap::whole(10, 2, 0);
    const auto pass = [](Op op, int stage) { return Pass{op, static_cast<uint16_t>(stage), 0}; };
    schedule.passes = {{pass(Op::E, 0), pass(Op::F, 0), pass(Op::F, 3), pass(Op::S, 0),
                        pass(Op::T, 0), pass(Op::B, 3), pass(Op::B, 0), pass(Op::G, 0)},
                       {pass(Op::F, 1), pass(Op::F, 2), pass(Op::B, 2), pass(Op::B, 1)}};
    const std::vector<Program> programs = lowered(schedule);
    EXPECT_EQ(count_actions(programs), (ActionCounts{{Do::pass, 12},
                                                     {Do::send, 4},
                                                     {Do::receive, 4},
                                                     {Do::combine_softmax, 1},
                                                     {Do::ordered_sum, 1}}));
    // 1F hands its output to 2F in the same buffer.
    const Program& middle = programs[1];
    std::map<std::string, std::vector<uint32_t>> operands;
    for (const Action& action : middle.actions) {
        const auto of_action = middle.operands_of(action);
        operands[middle.name_of(action)].assign(of_action.begin(), of_action.end());
    }
    EXPECT_EQ(operands["1F0"][1], operands["2F0"][0]);
    EXPECT_EQ(operands["2B0"][4], operands["1B0"][0]);
}

TEST(Lowering, IsAFunctionOfItsArguments) {
    for (const Kind& kind : every_kind(false)) {
        const Schedule schedule = generated(kind, 4, 8);
        const std::vector<Program> once = lowered(schedule);
        const std::vector<Program> again = lowered(schedule);
        for (size_t rank = 0; rank < once.size(); ++rank) {
            EXPECT_EQ(once[rank].hash, again[rank].hash);
            EXPECT_EQ(once[rank].operands, again[rank].operands);
            EXPECT_EQ(once[rank].arena_bytes, again[rank].arena_bytes);
        }
    }
}

TEST(Lowering, HashesDifferWhenScheduleSizesOrOrderDiffer) {
    std::set<uint64_t> hashes;
    size_t made = 0;
    const auto add = [&](const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
                         int ahead) {
        hashes.insert(lower(schedule, sizes, costs, {.receive_ahead = ahead}).front().hash);
        ++made;
    };
    for (const VocabMode mode : {VocabMode::none, VocabMode::interlaced, VocabMode::one_barrier,
                                 VocabMode::two_barriers}) {
        for (const int m : {4, 5}) {
            const Schedule schedule = generated({"1f1b", mode, false}, 3, m);
            add(schedule, sizes_for(schedule), uneven_costs(schedule), 1);
            add(schedule, sizes_for(schedule, 48), uneven_costs(schedule), 1);
            add(schedule, sizes_for(schedule), uneven_costs(schedule), 2);
        }
    }
    EXPECT_EQ(hashes.size(), made);
}

// --- end of the step and bad input
// ------------------------------------------------------------------

TEST(Lowering, AddsNormReportAndUpdateOncePerRankAfterAllPasses) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 3, 4);
    StepSizes sizes = sizes_for(schedule);
    sizes.report_bytes = 80;
    for (const Program& program : lower(schedule, sizes, uneven_costs(schedule))) {
        const size_t count = program.passes.size();
        ASSERT_GE(count, 2U);
        EXPECT_EQ(to_string(program.passes[count - 2]), "Report");
        EXPECT_EQ(to_string(program.passes[count - 1]), "Update");
        EXPECT_EQ(to_string(pass_of(program, program.actions.back())), "Update");
        const auto reports = program.operands_of(program.actions.back());
        ASSERT_EQ(reports.size(), 1U);
        EXPECT_EQ(program.buffers[reports[0]].bytes, 3U * 80U);
    }
}

TEST(Lowering, ExchangesTiedGradientsOfTwoWholeLayersBeforeEitherIsAddedTo) {
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 3, 4);
    StepSizes sizes = sizes_for(schedule);
    sizes.tied = true;
    const std::vector<Program> programs = lower(schedule, sizes, uneven_costs(schedule));
    const auto bytes = static_cast<uint64_t>(1000 * sizes.hidden * 4);
    for (const int rank : {0, 2}) {
        const Program& program = programs[static_cast<size_t>(rank)];
        const HappensBefore before(program);
        std::vector<uint32_t> messages;
        uint32_t reduce = UINT32_MAX;
        uint32_t last_gradient = UINT32_MAX;
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            const Action& action = program.actions[i];
            if (action.lane == Lane::collective) messages.push_back(i);
            if (action.what != Do::pass) continue;
            const Op op = pass_of(program, action).op;
            if (op == Op::Reduce) reduce = i;
            if (op == (rank == 0 ? Op::G : Op::T)) last_gradient = i;
        }
        ASSERT_NE(reduce, UINT32_MAX);
        ASSERT_EQ(messages.size(), 2U);
        for (const uint32_t message : messages) {
            const Buffer& buffer =
                program.buffers[program.operands_of(program.actions[message])[0]];
            const bool sends = program.actions[message].what == Do::send;
            EXPECT_EQ(buffer.bytes, bytes);
            EXPECT_EQ(buffer.space, !sends      ? Buffer::Space::arena
                                    : rank == 0 ? Buffer::Space::embedding_gradient
                                                : Buffer::Space::output_gradient);
            EXPECT_TRUE(before.ordered(message, reduce));
            if (sends) {
                EXPECT_TRUE(before.ordered(last_gradient, message));
            }
        }
    }
    EXPECT_TRUE(std::none_of(programs[1].passes.begin(), programs[1].passes.end(),
                             [](const Pass& pass) { return pass.op == Op::Reduce; }));
}

TEST(Lowering, AddsTiedGradientsOfEqualShardsLocally) {
    const Schedule schedule = generated({"1f1b", VocabMode::two_barriers, false}, 3, 4);
    StepSizes sizes = sizes_for(schedule);
    const ActionCounts untied = count_actions(lower(schedule, sizes, uneven_costs(schedule)));
    sizes.tied = true;
    ActionCounts tied = count_actions(lower(schedule, sizes, uneven_costs(schedule)));
    tied[Do::pass] -= 3;
    EXPECT_EQ(tied, untied);
}

std::string refusal(const Schedule& schedule, const StepSizes& sizes) {
    try {
        (void)lower(schedule, sizes, uneven_costs(schedule));
    } catch (const UsageError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Lowering, RefusesSizesThatDoNotFitTheSchedule) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 3, 4);
    StepSizes sizes = sizes_for(schedule);
    EXPECT_EQ(refusal(schedule, sizes), "accepted");
    sizes.stages.pop_back();
    EXPECT_THAT(refusal(schedule, sizes), HasSubstr("2 stages, but the schedule has 3"));
    sizes = sizes_for(schedule);
    sizes.shards.emplace_back();
    EXPECT_THAT(refusal(schedule, sizes),
                HasSubstr("4 output shards, but the schedule has 3 ranks"));
    sizes = sizes_for(schedule);
    sizes.tokens = 0;
    EXPECT_THAT(refusal(schedule, sizes), HasSubstr("must be at least 1"));

    Schedule uneven = schedule;
    uneven.input = ShardMap{{0, 500, 700, 1000}};
    sizes = sizes_for(schedule);
    sizes.tied = true;
    EXPECT_THAT(refusal(uneven, sizes), HasSubstr("tied"));
}

// Costs of one pipeline, where the world has two: their table ends before the world does.
TEST(Lowering, RefusesCostsOfAnotherNumberOfRanks) {
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 2, 2);
    StepSizes sizes = sizes_for(schedule);
    TableCosts costs = uneven_costs(schedule);
    const auto refused = [&] {
        try {
            (void)lower(schedule, sizes, costs);
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    sizes.replicas = 2;
    sizes.buckets.resize(2);
    EXPECT_THAT(refused(), HasSubstr("costs are set for 2 ranks, but the world has 4, 2 slices "
                                     "of 2 pipeline ranks; set TableCosts::slices"));
    costs.slices = 2;
    EXPECT_EQ(refused(), "accepted");
    costs.slices = 4;
    EXPECT_THAT(refused(), HasSubstr("costs are set for 8 ranks"));
    costs.slices = 2;
    costs.stage_ns.pop_back();
    EXPECT_THAT(refused(), HasSubstr("costs: no cost for 1F0 on rank 2; there are 1 stages"));
}

TEST(Lowering, RefusesInvalidSchedulesAsTheValidatorDoes) {
    Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 3, 4);
    std::swap(schedule.passes[1].front(), schedule.passes[1].back());
    EXPECT_THROW((void)lowered(schedule), ScheduleError);
}

}  // namespace
}  // namespace vocabpipe::testing
