// SPDX-License-Identifier: Apache-2.0
// Both forms of find_deadlock(). The participants of a communication become one node and must agree
// on kind, group and sizes. Then the graph of these nodes must be acyclic: either every program
// follows the one global order, which is fast to see, or a walk in dependency order reaches all
// nodes.
#include "src/schedule/action_costs.hpp"
#include "src/schedule/lower/slice.hpp"
#include "src/schedule/meetings.hpp"
#include "src/schedule/successors.hpp"
#include "vocabpipe/lower.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

namespace vocabpipe {

namespace {

/// A node of the proof: all participants of one communication, or a single action.
struct Joint {
    Do what = Do::pass;
    uint32_t order = 0;
    const Group* group = nullptr;  ///< null: no communication
    const Pass* pass = nullptr;    ///< a pass that a team of its stage runs together
    size_t participants = 0;
    int pieces = 1;
    int first_rank = -1;
    int last_rank = -1;
    uint64_t each = 0;      ///< bytes that the first participant sends
    uint64_t sent = 0;      ///< bytes, over all participants
    uint64_t received = 0;  ///< bytes, over all participants
    bool everyone = true;   ///< false: participants of other slices are ignored
};

std::string at_order(const Joint& joint) {
    return "the " + std::string(to_string(joint.what)) + " at order " + std::to_string(joint.order);
}

uint64_t bytes_of(const Program& program, uint32_t buffer) {
    return buffer == kNoBuffer ? 0 : program.buffers[buffer].bytes;
}

Joint begun_by(const Program& program, const Action& action) {
    Joint joint;
    joint.what = transfer_kind(action.what);
    joint.order = action.order;
    joint.pieces = action.pieces;
    joint.first_rank = program.rank;
    if (action.what == Do::pass) joint.pass = &program.passes[action.item];
    return joint;
}

/// Whether the action belongs to a node with others: a communication, or the same pass of a stage.
bool may_join(const Joint& joint, const Program& program, const Action& action) {
    if (is_communication(joint.what)) return true;
    if (joint.pass == nullptr || action.what != Do::pass) return false;
    const Pass& pass = program.passes[action.item];
    return traits(pass.op).has_stage && joint.pass->op == pass.op &&
           joint.pass->stage == pass.stage && joint.pass->microbatch == pass.microbatch;
}

/// Adds one rank's action to its node; returns an error, if any.
std::optional<std::string> join(Joint& joint, const Program& program, const Action& action) {
    const bool first = joint.participants == 0;
    const std::string rank = "rank " + std::to_string(program.rank);
    const bool communicates = is_communication(joint.what);
    const Group* group = communicates ? &program.groups[action.group] : nullptr;
    if (first) joint.group = group;
    if (joint.what != transfer_kind(action.what) || joint.pieces != action.pieces ||
        (!first && !may_join(joint, program, action)) || (communicates && *joint.group != *group)) {
        return rank + " and rank " + std::to_string(joint.first_rank) + " disagree at order " +
               std::to_string(action.order) + ": " + program.name_of(action);
    }
    ++joint.participants;
    if (!communicates) return std::nullopt;
    const bool twice = !first && joint.last_rank == program.rank;
    joint.last_rank = program.rank;
    const auto member = std::find(group->ranks.begin(), group->ranks.end(), program.rank);
    if (twice || member == group->ranks.end()) {
        return rank + (twice ? " takes part twice in " : " is not a member of ") + at_order(joint);
    }
    const ActionTraits& row = traits(action.what);
    if (row.point_to_point) {
        const bool sender = member == group->ranks.begin();
        if (sender != (action.what == Do::send)) {
            return rank + " is at the wrong end of " + at_order(joint);
        }
    }
    const SentAndReceived buffers = moved(action.what, program.operands_of(action));
    const uint64_t received = bytes_of(program, buffers.received);
    // Either end of a message has the whole of it.
    const uint64_t sent = action.what == Do::receive ? received : bytes_of(program, buffers.sent);
    if (first) joint.each = sent;
    joint.sent += sent;
    joint.received += received;
    if (!joint.everyone) return std::nullopt;
    const bool gets_all = row.even && row.received == Received::every_part_at_all;
    if ((row.even && sent != joint.each) ||
        (gets_all && received != joint.each * group->ranks.size())) {
        return rank + " has different sizes than rank " + std::to_string(joint.first_rank) +
               " in " + at_order(joint);
    }
    return std::nullopt;
}

/// Bytes that all members together must receive; none if unknown.
std::optional<uint64_t> received_by_all(const Joint& joint) {
    switch (traits(joint.what).received) {
        case Received::unchecked:
            break;
        case Received::one_part:
            return joint.each;
        case Received::every_part:
            return joint.sent;
        case Received::every_part_at_all:
            return joint.sent * joint.group->ranks.size();
    }
    return std::nullopt;
}

bool has_order(const Program& program, uint32_t order) {
    return std::any_of(program.actions.begin(), program.actions.end(),
                       [order](const Action& action) { return action.order == order; });
}

/// An error in a complete node, if any. `takes_part(rank, order)`: whether the rank's program has
/// an action there.
template <typename TakesPart>
std::optional<std::string> incomplete(const Joint& joint, TakesPart&& takes_part) {
    if (joint.group == nullptr) return std::nullopt;
    if (joint.participants == joint.group->ranks.size()) {
        const std::optional<uint64_t> wanted =
            joint.everyone ? received_by_all(joint) : std::nullopt;
        if (!wanted || joint.received == *wanted) return std::nullopt;
        return "rank " + std::to_string(joint.first_rank) + " and others: the blocks of " +
               at_order(joint) + " are " + std::to_string(joint.received) + " of " +
               std::to_string(*wanted) + " bytes";
    }
    std::string absent;
    for (const int rank : joint.group->ranks) {
        if (!takes_part(rank, joint.order))
            absent += (absent.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    return at_order(joint) + " has " + std::to_string(joint.participants) + " of " +
           std::to_string(joint.group->ranks.size()) + " participants; missing: " + absent;
}

/// Whether every program lists its actions in the global order and its edges point forward in it;
/// then everything can run in that order.
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

/// Walks the graph of all joint nodes in dependency order; returns an error naming an action that
/// is never reached.
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

/// Whether ranks of other slices take part in the action.
bool spans_slices(const Program& program, const Action& action, const Lowered& world) {
    const Axis axis = lowering::met_in(program, action, program.groups, world.stage_teams);
    return world.mesh.slices_along(axis, 0).count > 1;
}

/// `of`: the world of which `programs` are one slice; null: they are a whole world.
std::optional<std::string> prove(const std::vector<Program>& programs, const Lowered* of) {
    const bool alone = of != nullptr && of->mesh.slices() > 1;
    const Meetings meetings(programs);
    std::vector<Joint> joints(meetings.count());
    for (const Program& program : programs) {
        for (const Action& action : program.actions) {
            Joint& joint = joints[meetings.of(action)];
            if (joint.first_rank < 0) {
                joint = begun_by(program, action);
                joint.everyone = !(alone && spans_slices(program, action, *of));
            }
            if (auto fault = join(joint, program, action)) return fault;
        }
    }
    const auto takes_part = [&](int rank, uint32_t order) {
        return std::any_of(programs.begin(), programs.end(), [&](const Program& program) {
            return program.rank == rank && has_order(program, order);
        });
    };
    for (const Joint& joint : joints) {
        if (auto fault = incomplete(joint, takes_part)) return fault;
    }
    return follow_one_order(programs) ? std::nullopt : find_cycle(programs, meetings);
}

/// Checks the communication between slices, with all participants and their sizes.
std::optional<std::string> prove_meetings_of_slices(const Lowered& world) {
    Lowered meetings = world;
    for (Program& program : meetings.pipeline) {
        std::erase_if(program.actions,
                      [&](const Action& action) { return !spans_slices(program, action, world); });
        program.edges = {};
    }
    std::map<uint32_t, Joint> joints;
    std::deque<Group> groups;  // of the joints
    std::deque<Pass> passes;
    for (int rank = 0; rank < world.mesh.size(); ++rank) {
        const Program program = meetings.of(rank);
        for (const Action& action : program.actions) {
            Joint& joint = joints[action.order];
            const bool first = joint.first_rank < 0;
            if (first) joint = begun_by(program, action);
            if (auto fault = join(joint, program, action)) return fault;
            if (!first) continue;
            if (joint.group != nullptr) joint.group = &groups.emplace_back(*joint.group);
            if (joint.pass != nullptr) joint.pass = &passes.emplace_back(*joint.pass);
        }
    }
    const auto takes_part = [&](int rank, uint32_t order) {
        return has_order(meetings.of(rank), order);
    };
    for (const auto& [order, joint] : joints) {
        if (auto fault = incomplete(joint, takes_part)) return fault;
        if (joint.pass == nullptr) continue;
        const Axis team = world.stage_teams[joint.pass->stage];
        const int members = world.mesh.size_of(team);
        if (std::cmp_not_equal(joint.participants, members)) {
            return at_order(joint) + ", " + to_string(*joint.pass) + ", has " +
                   std::to_string(joint.participants) + " of " + std::to_string(members) + " " +
                   std::string(to_string(team)) + " ranks";
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::string> find_deadlock(const std::vector<Program>& programs) {
    return prove(programs, nullptr);
}

std::optional<std::string> find_deadlock(const Lowered& world) {
    const bool alone = world.mesh.slices() > 1;
    if (auto fault = prove(world.pipeline, &world)) return fault;
    return alone ? prove_meetings_of_slices(world) : std::nullopt;
}

}  // namespace vocabpipe
