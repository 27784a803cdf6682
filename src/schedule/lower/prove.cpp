// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/action_costs.hpp"
#include "src/schedule/meetings.hpp"
#include "src/schedule/successors.hpp"
#include "vocabpipe/lower.hpp"

#include <algorithm>
#include <array>

namespace vocabpipe {

namespace {

/// All participants of one communication, or a single action, as one node.
struct Joint {
    Do what = Do::pass;
    uint32_t order = 0;
    const Group* group = nullptr;  ///< null: a single action
    size_t participants = 0;
    int first_rank = -1;
    int last_rank = -1;
    uint64_t each = 0;             ///< bytes of the first participant's first operand
    uint64_t first_operands = 0;   ///< bytes, over all participants
    uint64_t second_operands = 0;  ///< the same of the second operand
};

std::string at_order(const Joint& joint) {
    return "the " + std::string(to_string(joint.what)) + " at order " + std::to_string(joint.order);
}

uint64_t bytes_of(const Program& program, const Action& action, size_t operand) {
    const auto operands = program.operands_of(action);
    if (operand >= operands.size() || operands[operand] == kNoBuffer) return 0;
    return program.buffers[operands[operand]].bytes;
}

/// Adds one rank's action to its node; says what is wrong with it.
std::optional<std::string> join(Joint& joint, const Program& program, const Action& action) {
    const bool first = joint.participants == 0;
    const std::string rank = "rank " + std::to_string(program.rank);
    const bool communicates = is_communication(joint.what);
    const Group* group = communicates ? &program.groups[action.group] : nullptr;
    if (first) joint.group = group;
    if (joint.what != transfer_kind(action.what) || (!first && !communicates) ||
        (communicates && *joint.group != *group)) {
        return rank + " and rank " + std::to_string(joint.first_rank) + " disagree at order " +
               std::to_string(action.order) + ": " + program.name_of(action);
    }
    ++joint.participants;
    if (!communicates) return std::nullopt;
    const bool twice = !first && joint.last_rank == program.rank;
    joint.last_rank = program.rank;
    const auto member = std::find(group->ranks.begin(), group->ranks.end(), program.rank);
    if (twice || member == group->ranks.end()) {
        return rank + (twice ? " takes part twice in " : " is no member of ") + at_order(joint);
    }
    if (joint.what == Do::send) {
        const bool sender = member == group->ranks.begin();
        if (sender != (action.what == Do::send)) {
            return rank + " is at the wrong end of " + at_order(joint);
        }
    }
    const uint64_t bytes = bytes_of(program, action, 0);
    const uint64_t all = bytes_of(program, action, 1);
    if (first) joint.each = bytes;
    joint.first_operands += bytes;
    joint.second_operands += all;
    const bool uneven = joint.what == Do::gather || joint.what == Do::all_gather_v;
    if ((!uneven && bytes != joint.each) ||
        (joint.what == Do::all_gather && all != joint.each * group->ranks.size())) {
        return rank + " has other sizes than rank " + std::to_string(joint.first_rank) + " in " +
               at_order(joint);
    }
    return std::nullopt;
}

/// Bytes of all second operands together; none where members may keep what they sent.
std::optional<uint64_t> received_by_all(const Joint& joint) {
    const auto members = static_cast<uint64_t>(joint.group->ranks.size());
    switch (joint.what) {
        case Do::all_to_all:
            return joint.each * members;
        case Do::reduce:
            return joint.each;
        case Do::gather:
            return joint.first_operands;
        case Do::all_gather_v:
            return joint.first_operands * members;
        default:
            return std::nullopt;
    }
}

/// What is wrong with a node that all programs have added to.
std::optional<std::string> incomplete(const Joint& joint, const std::vector<Program>& programs) {
    if (joint.group == nullptr) return std::nullopt;
    if (joint.participants == joint.group->ranks.size()) {
        const std::optional<uint64_t> wanted = received_by_all(joint);
        if (!wanted || joint.second_operands == *wanted) return std::nullopt;
        return "rank " + std::to_string(joint.first_rank) + " and others: the blocks of " +
               at_order(joint) + " are " + std::to_string(joint.second_operands) + " of " +
               std::to_string(*wanted) + " bytes";
    }
    std::string absent;
    for (const int rank : joint.group->ranks) {
        bool there = false;
        for (const Program& program : programs) {
            there = there || (program.rank == rank &&
                              std::any_of(program.actions.begin(), program.actions.end(),
                                          [&](const Action& a) { return a.order == joint.order; }));
        }
        if (!there) absent += (absent.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    return at_order(joint) + " has " + std::to_string(joint.participants) + " of " +
           std::to_string(joint.group->ranks.size()) + " participants; missing: " + absent;
}

}  // namespace

namespace {

/// Every program lists its actions in the global order and its edges point forward in it: then that
/// order is one in which everything can run.
bool follow_one_order(const std::vector<Program>& programs) {
    for (const Program& program : programs) {
        for (size_t i = 1; i < program.actions.size(); ++i) {
            if (program.actions[i - 1].order >= program.actions[i].order) return false;
        }
        for (const Edge& edge : program.edges) {
            if (edge.before >= edge.after) return false;
        }
    }
    return true;
}

/// Walks the graph of all joint nodes in dependency order; says who is never reached.
std::optional<std::string> find_cycle(const std::vector<Program>& programs,
                                      const Meetings& meetings) {
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (const Program& program : programs) {
        const auto joint = [&](size_t action) { return meetings.of(program.actions[action]); };
        std::array<int64_t, kLanes> last;
        last.fill(-1);
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            int64_t& previous = last[static_cast<size_t>(program.actions[i].lane)];
            if (previous >= 0) edges.emplace_back(joint(static_cast<size_t>(previous)), joint(i));
            previous = i;
        }
        for (const Edge& edge : program.edges) {
            edges.emplace_back(joint(edge.before), joint(edge.after));
        }
    }
    Successors successors(meetings.count(), edges);
    std::vector<uint32_t> ready;
    for (uint32_t i = 0; i < meetings.count(); ++i) {
        if (successors.missing[i] == 0) ready.push_back(i);
    }
    size_t done = 0;
    while (!ready.empty()) {
        const uint32_t node = ready.back();
        ready.pop_back();
        ++done;
        for (const uint32_t next : successors.of(node)) {
            if (--successors.missing[next] == 0) ready.push_back(next);
        }
    }
    if (done == meetings.count()) return std::nullopt;
    for (const Program& program : programs) {
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            if (successors.missing[meetings.of(program.actions[i])] > 0) {
                return "rank " + std::to_string(program.rank) + " cannot reach action " +
                       std::to_string(i) + " (" + program.name_of(program.actions[i]) + "); " +
                       std::to_string(meetings.count() - done) + " actions wait for each other";
            }
        }
    }
    return "some actions wait for each other";
}

}  // namespace

std::optional<std::string> find_deadlock(const std::vector<Program>& programs) {
    const Meetings meetings(programs);
    std::vector<Joint> joints(meetings.count());
    for (const Program& program : programs) {
        for (const Action& action : program.actions) {
            Joint& joint = joints[meetings.of(action)];
            if (joint.first_rank < 0) {
                joint.what = transfer_kind(action.what);
                joint.order = action.order;
                joint.first_rank = program.rank;
            }
            if (auto fault = join(joint, program, action)) return fault;
        }
    }
    for (const Joint& joint : joints) {
        if (auto fault = incomplete(joint, programs)) return fault;
    }
    return follow_one_order(programs) ? std::nullopt : find_cycle(programs, meetings);
}

}  // namespace vocabpipe
