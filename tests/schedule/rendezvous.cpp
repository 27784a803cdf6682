// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/rendezvous.hpp"

namespace vocabpipe::testing {

namespace {

struct Walker {
    const std::vector<Program>& programs;
    std::vector<std::vector<bool>> done;

    const Action& action(size_t rank, size_t index) const { return programs[rank].actions[index]; }

    /// First in its lane of what is not done, and all its edges done.
    bool stands_at(size_t rank, size_t index) const {
        if (done[rank][index]) return false;
        for (size_t i = 0; i < index; ++i) {
            if (!done[rank][i] && action(rank, i).lane == action(rank, index).lane) return false;
        }
        for (const Edge& edge : programs[rank].edges) {
            if (edge.after == index && !done[rank][edge.before]) return false;
        }
        return true;
    }

    uint64_t bytes(size_t rank, size_t index, size_t operand) const {
        const uint32_t buffer = programs[rank].operands_of(action(rank, index))[operand];
        return buffer == kNoBuffer ? 0 : programs[rank].buffers[buffer].bytes;
    }

    bool sizes_fit(const std::vector<std::pair<size_t, size_t>>& members) const {
        const auto [rank0, index0] = members.front();
        const Do what = action(rank0, index0).what;
        const uint64_t first = bytes(rank0, index0, 0);
        uint64_t first_operands = 0;
        uint64_t second_operands = 0;
        for (const auto& [rank, index] : members) {
            const bool uneven = what == Do::gather || what == Do::all_gather_v;
            if (!uneven && bytes(rank, index, 0) != first) return false;
            first_operands += bytes(rank, index, 0);
            if (what == Do::send || what == Do::receive || what == Do::broadcast) continue;
            second_operands += bytes(rank, index, 1);
            if (what == Do::all_gather && bytes(rank, index, 1) != members.size() * first) {
                return false;
            }
        }
        if (what == Do::all_to_all) return second_operands == members.size() * first;
        if (what == Do::reduce) return second_operands == first;
        if (what == Do::all_gather_v) {
            return second_operands == members.size() * first_operands;
        }
        return what != Do::gather || first_operands == second_operands;
    }

    bool completes(size_t rank, size_t index) {
        if (!stands_at(rank, index)) return false;
        const Action& mine = action(rank, index);
        if (mine.what == Do::pass || mine.what == Do::combine_softmax ||
            mine.what == Do::ordered_sum) {
            done[rank][index] = true;
            return true;
        }
        const std::vector<int>& group = programs[rank].groups[mine.group].ranks;
        std::vector<std::pair<size_t, size_t>> members;
        for (const int peer : group) {
            const auto r = static_cast<size_t>(peer);
            for (size_t i = 0; i < programs[r].actions.size(); ++i) {
                if (action(r, i).order == mine.order && action(r, i).group == mine.group &&
                    stands_at(r, i)) {
                    members.emplace_back(r, i);
                    break;
                }
            }
        }
        if (members.size() != group.size()) return false;
        bool has_me = false;
        for (size_t k = 0; k < members.size(); ++k) {
            const Do what = action(members[k].first, members[k].second).what;
            const bool message = mine.what == Do::send || mine.what == Do::receive;
            const Do role = message ? (k == 0 ? Do::send : Do::receive) : mine.what;
            if (what != role) return false;
            if (members[k] == std::pair{rank, index}) has_me = true;
        }
        if (!has_me || !sizes_fit(members)) return false;
        for (const auto& [r, i] : members) done[r][i] = true;
        return true;
    }
};

}  // namespace

std::string rendezvous_fault(const std::vector<Program>& programs) {
    Walker walker{programs, {}};
    for (const Program& program : programs) walker.done.emplace_back(program.actions.size(), false);
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            for (size_t i = 0; i < programs[rank].actions.size(); ++i) {
                if (walker.completes(rank, i)) moved = true;
            }
        }
    }
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        for (size_t i = 0; i < programs[rank].actions.size(); ++i) {
            if (walker.done[rank][i]) continue;
            return "rank " + std::to_string(rank) + " is stuck at " +
                   programs[rank].name_of(programs[rank].actions[i]);
        }
    }
    return "";
}

}  // namespace vocabpipe::testing
