// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/lower.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace vocabpipe {

namespace {

/// All participants of one communication, or a single action, as one node.
struct Joint {
    Do what = Do::pass;
    uint16_t group = 0;
    uint32_t participants = 0;
    int first_rank = -1;
};

/// send and receive are the two ends of one message.
Do kind_of(const Action& action) { return action.what == Do::receive ? Do::send : action.what; }

bool is_communication(Do what) {
    return what != Do::pass && what != Do::combine && what != Do::fold;
}

}  // namespace

std::optional<std::string> find_deadlock(const std::vector<Program>& programs) {
    // Joint nodes by global order; local actions have an order of their own.
    std::unordered_map<uint32_t, uint32_t> joint_of_order;
    std::vector<Joint> joints;
    std::vector<std::vector<uint32_t>> joint_of(programs.size());
    for (const Program& program : programs) {
        const auto rank = static_cast<size_t>(program.rank);
        for (const Action& action : program.actions) {
            const Do kind = kind_of(action);
            const auto [found, added] =
                joint_of_order.try_emplace(action.order, static_cast<uint32_t>(joints.size()));
            if (added) joints.push_back({kind, action.group, 0, program.rank});
            Joint& joint = joints[found->second];
            if (joint.what != kind || (is_communication(kind) && joint.group != action.group) ||
                (!added && !is_communication(kind))) {
                return "rank " + std::to_string(program.rank) + " and rank " +
                       std::to_string(joint.first_rank) + " disagree at order " +
                       std::to_string(action.order) + ": " + program.name_of(action);
            }
            ++joint.participants;
            joint_of[rank].push_back(found->second);
        }
    }
    for (const auto& [order, index] : joint_of_order) {
        const Joint& joint = joints[index];
        const size_t expected = is_communication(joint.what)
                                    ? programs.front().groups[joint.group].ranks.size()
                                    : 1;
        if (joint.participants != expected) {
            return "the " + std::string(to_string(joint.what)) + " at order " +
                   std::to_string(order) + " has " + std::to_string(joint.participants) + " of " +
                   std::to_string(expected) + " participants";
        }
    }

    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (const Program& program : programs) {
        const std::vector<uint32_t>& joint = joint_of[static_cast<size_t>(program.rank)];
        std::array<int64_t, kLanes> last;
        last.fill(-1);
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            int64_t& previous = last[static_cast<size_t>(program.actions[i].lane)];
            if (previous >= 0) edges.emplace_back(joint[static_cast<size_t>(previous)], joint[i]);
            previous = i;
        }
        for (const Edge& edge : program.edges) {
            edges.emplace_back(joint[edge.before], joint[edge.after]);
        }
    }
    std::vector<uint32_t> missing(joints.size(), 0);
    std::vector<uint32_t> first(joints.size() + 1, 0);
    for (const auto& [before, after] : edges) {
        ++missing[after];
        ++first[before + 1];
    }
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<uint32_t> next(edges.size());
    std::vector<uint32_t> fill(first.begin(), first.end() - 1);
    for (const auto& [before, after] : edges) next[fill[before]++] = after;
    std::vector<uint32_t> ready;
    for (uint32_t i = 0; i < joints.size(); ++i) {
        if (missing[i] == 0) ready.push_back(i);
    }
    size_t done = 0;
    while (!ready.empty()) {
        const uint32_t node = ready.back();
        ready.pop_back();
        ++done;
        for (uint32_t i = first[node]; i < first[node + 1]; ++i) {
            if (--missing[next[i]] == 0) ready.push_back(next[i]);
        }
    }
    if (done == joints.size()) return std::nullopt;
    for (const Program& program : programs) {
        const std::vector<uint32_t>& joint = joint_of[static_cast<size_t>(program.rank)];
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            if (missing[joint[i]] > 0) {
                return "rank " + std::to_string(program.rank) + " cannot reach action " +
                       std::to_string(i) + " (" + program.name_of(program.actions[i]) + "); " +
                       std::to_string(joints.size() - done) + " actions wait for each other";
            }
        }
    }
    return "some actions wait for each other";
}

}  // namespace vocabpipe
