// SPDX-License-Identifier: Apache-2.0
// find_deadlock() against programs broken on purpose and against a walk in which every
// communication is a rendezvous.
#include "tests/schedule/program_tools.hpp"
#include "tests/schedule/rendezvous.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace vocabpipe::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string verdict(const std::vector<Program>& programs) {
    return find_deadlock(programs).value_or("");
}

std::vector<Program> usual() {
    return lowered(generated({"1f1b", VocabMode::one_barrier, false}, 3, 4));
}

/// Indices of a rank's actions that `wanted` holds for.
std::vector<uint32_t> find_actions(const Program& program,
                                   const std::function<bool(const Action&)>& wanted) {
    std::vector<uint32_t> found;
    for (uint32_t i = 0; i < program.actions.size(); ++i) {
        if (wanted(program.actions[i])) found.push_back(i);
    }
    return found;
}

/// Two actions change places in the rank's list; what they need and what needs them goes along.
void swap_places(Program& program, uint32_t a, uint32_t b) {
    std::swap(program.actions[a], program.actions[b]);
    const auto moved = [&](uint32_t& index) { index = index == a ? b : index == b ? a : index; };
    for (Edge& edge : program.edges) moved(edge.before), moved(edge.after);
}

void drop(Program& program, uint32_t index) {
    program.actions.erase(program.actions.begin() + index);
    std::erase_if(program.edges,
                  [&](const Edge& e) { return e.before == index || e.after == index; });
    for (Edge& edge : program.edges) {
        edge.before -= edge.before > index ? 1 : 0;
        edge.after -= edge.after > index ? 1 : 0;
    }
}

/// Free of what ties the two together on their own rank, so that only their order among ranks
/// matters.
void forget_edges(Program& program, uint32_t index) {
    std::erase_if(program.edges,
                  [&](const Edge& e) { return e.before == index || e.after == index; });
}

TEST(Deadlock, AcceptsWhatLoweringMakes) {
    EXPECT_EQ(verdict(usual()), "");
    EXPECT_EQ(rendezvous_fault(usual()), "");
}

TEST(Deadlock, RefusesTwoCollectivesSwappedOnOneRankOnly) {
    std::vector<Program> programs = usual();
    const std::vector<uint32_t> collectives = find_actions(
        programs[1], [](const Action& action) { return action.lane == Lane::collective; });
    ASSERT_GE(collectives.size(), 2U);
    for (size_t i = 0; i + 1 < collectives.size(); ++i) {
        std::vector<Program> broken = programs;
        const Action& a = broken[1].actions[collectives[i]];
        const Action& b = broken[1].actions[collectives[i + 1]];
        const std::vector<int>& ranks_a = broken[1].groups[a.group].ranks;
        const std::vector<int>& ranks_b = broken[1].groups[b.group].ranks;
        if (ranks_a.size() < 2 || ranks_b.size() < 2) continue;
        // The lane's order alone must give it away.
        forget_edges(broken[1], collectives[i]);
        forget_edges(broken[1], collectives[i + 1]);
        swap_places(broken[1], collectives[i], collectives[i + 1]);
        EXPECT_THAT(verdict(broken), ContainsRegex("rank [0-2]"));
        EXPECT_NE(rendezvous_fault(broken), "");
    }
}

TEST(Deadlock, RefusesEveryProgramThatLacksAParticipantAndNamesItsRank) {
    const std::vector<Program> programs = usual();
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        for (const uint32_t index : find_actions(programs[rank], has_participants)) {
            std::vector<Program> broken = programs;
            const std::string name = broken[rank].name_of(broken[rank].actions[index]);
            drop(broken[rank], index);
            EXPECT_THAT(verdict(broken), HasSubstr("missing: rank " + std::to_string(rank)))
                << name;
            EXPECT_NE(rendezvous_fault(broken), "") << name;
        }
    }
}

TEST(Deadlock, RefusesMessagesOfOneChannelInDifferentOrders) {
    const std::vector<Program> programs = usual();
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        for (const Do end : {Do::send, Do::receive}) {
            for (const Lane lane : {Lane::forward, Lane::backward}) {
                const std::vector<uint32_t> messages =
                    find_actions(programs[rank], [&](const Action& action) {
                        return action.what == end && action.lane == lane;
                    });
                for (size_t i = 0; i + 1 < messages.size(); ++i) {
                    std::vector<Program> broken = programs;
                    forget_edges(broken[rank], messages[i]);
                    forget_edges(broken[rank], messages[i + 1]);
                    swap_places(broken[rank], messages[i], messages[i + 1]);
                    EXPECT_THAT(verdict(broken), ContainsRegex("rank [0-2]"));
                    EXPECT_NE(rendezvous_fault(broken), "");
                }
            }
        }
    }
}

// Rank 0 waits for a gradient before it sends the activation that the gradient comes from.
TEST(Deadlock, RefusesAnEdgeThatClosesACycleAcrossRanks) {
    std::vector<Program> programs = usual();
    const auto of_first_microbatch = [](Do what, Lane lane) {
        return [=](const Action& action) {
            return action.what == what && action.lane == lane && action.item == 0;
        };
    };
    const auto sends = find_actions(programs[0], of_first_microbatch(Do::send, Lane::forward));
    const auto gradients =
        find_actions(programs[0], of_first_microbatch(Do::receive, Lane::backward));
    ASSERT_EQ(sends.size(), 1U);
    ASSERT_EQ(gradients.size(), 1U);
    programs[0].edges.push_back({gradients[0], sends[0]});
    EXPECT_THAT(verdict(programs), ContainsRegex("rank [0-2] cannot reach action [0-9]+"));
    EXPECT_NE(rendezvous_fault(programs), "");
    EXPECT_THROW((void)simulate(programs, uneven_costs(generated(
                                              {"1f1b", VocabMode::one_barrier, false}, 3, 4))),
                 UsageError);
}

TEST(Deadlock, RefusesAnActionThatWaitsForItself) {
    std::vector<Program> programs = usual();
    programs[2].edges.push_back({5, 5});
    EXPECT_THAT(verdict(programs), ContainsRegex("rank [0-2] cannot reach action [0-9]+"));
    EXPECT_NE(rendezvous_fault(programs), "");
}

TEST(Deadlock, RefusesTwoReceiversOfOneMessage) {
    std::vector<Program> programs = usual();
    const auto sends =
        find_actions(programs[0], [](const Action& action) { return action.what == Do::send; });
    programs[0].actions[sends.front()].what = Do::receive;
    EXPECT_THAT(verdict(programs), HasSubstr("rank 0 is at the wrong end of the send"));
    EXPECT_NE(rendezvous_fault(programs), "");
}

TEST(Deadlock, RefusesARankThatTakesPartTwiceAndAStranger) {
    std::vector<Program> programs = usual();
    const auto sends =
        find_actions(programs[0], [](const Action& action) { return action.what == Do::send; });
    std::vector<Program> twice = programs;
    twice[0].actions[sends[1]].order = twice[0].actions[sends[0]].order;
    EXPECT_THAT(verdict(twice), HasSubstr("rank 0 takes part twice"));

    // Rank 2 poses as the receiver of a message from rank 0 to rank 1.
    const Action message = programs[0].actions[sends[0]];
    std::vector<Program> stranger = programs;
    const auto receives =
        find_actions(stranger[2], [](const Action& action) { return action.what == Do::receive; });
    stranger[2].actions[receives[0]].order = message.order;
    stranger[2].actions[receives[0]].group = static_cast<uint16_t>(stranger[2].groups.size());
    stranger[2].groups.push_back(programs[0].groups[message.group]);
    EXPECT_THAT(verdict(stranger), HasSubstr("rank 2 is not a member of"));
    EXPECT_NE(rendezvous_fault(stranger), "");
}

TEST(Deadlock, RefusesParticipantsThatDisagreeOnSizes) {
    const std::vector<Program> programs = usual();
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        for (const uint32_t index : find_actions(programs[rank], has_participants)) {
            for (size_t operand = 0; operand < programs[rank].actions[index].operand_count;
                 ++operand) {
                std::vector<Program> broken = programs;
                Program& program = broken[rank];
                const uint32_t buffer = program.operands_of(program.actions[index])[operand];
                if (buffer == kNoBuffer) continue;
                program.buffers[buffer].bytes += 4;
                EXPECT_THAT(verdict(broken), AnyOf(HasSubstr("sizes"), HasSubstr("bytes")))
                    << program.name_of(program.actions[index]) << " operand " << operand;
                EXPECT_THAT(verdict(broken), ContainsRegex("rank [0-2]"));
                EXPECT_NE(rendezvous_fault(broken), "");
            }
        }
    }
}

TEST(Deadlock, RefusesDifferentKindsAtOnePlaceInTheOrder) {
    std::vector<Program> programs = usual();
    const auto broadcasts = find_actions(
        programs[1], [](const Action& action) { return action.what == Do::broadcast; });
    programs[1].actions[broadcasts.front()].what = Do::gather;
    EXPECT_THAT(verdict(programs), HasSubstr("rank 1 and rank 0 disagree at order"));
}

/// Breaks something, or changes what makes no difference.
void mutate_program(std::vector<Program>& programs, std::mt19937& random) {
    Program& program = programs[random() % programs.size()];
    const auto count = static_cast<uint32_t>(program.actions.size());
    const auto any = [&] { return static_cast<uint32_t>(random() % count); };
    const std::vector<uint32_t> messages = find_actions(program, has_participants);
    const auto any_message = [&] { return messages[random() % messages.size()]; };
    switch (random() % (messages.empty() ? 4 : 9)) {
        case 0:
            swap_places(program, any(), any());
            break;
        case 1: {
            const uint32_t at = static_cast<uint32_t>(random() % (count - 1));
            swap_places(program, at, at + 1);
            break;
        }
        case 2:
            program.edges.push_back({any(), any()});
            break;
        case 3:
            if (!program.edges.empty()) {
                program.edges.erase(program.edges.begin() +
                                    static_cast<std::ptrdiff_t>(random() % program.edges.size()));
            }
            break;
        case 4:
            drop(program, any_message());
            break;
        case 5:
            program.actions[any_message()].lane = static_cast<Lane>(1 + random() % 3);
            break;
        case 6:
            program.actions[any_message()].order = program.actions[any_message()].order;
            break;
        case 7:
            program.actions[any_message()].group =
                static_cast<uint16_t>(random() % program.groups.size());
            break;
        case 8: {
            Action& action = program.actions[any_message()];
            if (action.what == Do::send) {
                action.what = Do::receive;
            } else if (action.what == Do::receive) {
                action.what = Do::send;
            }
            break;
        }
    }
}

TEST(Deadlock, AgreesWithTheRendezvousWalkOnRandomMutations) {
    std::mt19937 random(11);
    int refused = 0;
    int accepted = 0;
    for (int i = 0; i < 4000; ++i) {
        const Schedule schedule =
            random_schedule(random, {.most_ranks = 4, .most_stages = 5, .most_microbatches = 3});
        if (schedule.ranks == 1) continue;
        std::vector<Program> programs = lowered(schedule);
        if (std::any_of(programs.begin(), programs.end(),
                        [](const Program& program) { return program.actions.size() < 2; })) {
            continue;
        }
        const int mutations = 1 + static_cast<int>(random() % 3);
        for (int k = 0; k < mutations; ++k) mutate_program(programs, random);
        const std::string found = verdict(programs);
        const std::string walked = rendezvous_fault(programs);
        ASSERT_EQ(found.empty(), walked.empty())
            << "case " << i << "\nproof: " << found << "\nwalk: " << walked << "\n"
            << describe(schedule);
        if (!found.empty()) {
            ASSERT_THAT(found, HasSubstr("rank "));
        }
        ++(found.empty() ? accepted : refused);
    }
    EXPECT_GT(refused, 500);
    EXPECT_GT(accepted, 500);
}

}  // namespace
}  // namespace vocabpipe::testing
