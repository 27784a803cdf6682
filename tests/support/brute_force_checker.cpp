// SPDX-License-Identifier: Apache-2.0
#include "tests/support/brute_force_checker.hpp"

#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace vocabpipe::testing {

namespace {

/// (letter, stage or -1, rank, microbatch)
using Name = std::tuple<char, int, int, int>;
using Names = std::set<Name>;

char letter_of(Op op) {
    const std::map<Op, char> letters{{Op::F, 'F'}, {Op::B, 'B'}, {Op::I, 'I'},
                                     {Op::W, 'W'}, {Op::R, 'R'}, {Op::E, 'E'},
                                     {Op::G, 'G'}, {Op::S, 'S'}, {Op::T, 'T'}};
    const auto found = letters.find(op);
    return found == letters.end() ? '?' : found->second;
}

Op op_of(char letter) {
    for (int op = 0; op < 9; ++op) {
        if (letter_of(static_cast<Op>(op)) == letter) return static_cast<Op>(op);
    }
    return Op::Update;
}

std::string print(const Name& name) {
    const auto& [letter, stage, rank, microbatch] = name;
    return (stage < 0 ? "" : std::to_string(stage)) + letter + std::to_string(microbatch) +
           " on rank " + std::to_string(rank);
}

/// Everything that must be there, with every backward in one piece. There may be an R for each.
Names wanted(const Schedule& s, bool forward_only) {
    Names names;
    for (int j = 0; j < s.microbatches; ++j) {
        for (int stage = 0; stage < s.stages; ++stage) {
            const int rank = s.rank_of_stage.at(static_cast<size_t>(stage));
            names.insert({'F', stage, rank, j});
            if (!forward_only) names.insert({'B', stage, rank, j});
        }
        for (int rank = 0; rank < s.ranks; ++rank) {
            const auto r = static_cast<size_t>(rank);
            if (s.input.first_row.at(r + 1) > s.input.first_row.at(r)) {
                names.insert({'E', -1, rank, j});
                if (!forward_only) names.insert({'G', -1, rank, j});
            }
            if (s.output.first_row.at(r + 1) > s.output.first_row.at(r)) {
                names.insert({'S', -1, rank, j});
                if (!forward_only) names.insert({'T', -1, rank, j});
            }
        }
    }
    return names;
}

/// The passes of `all` whose results `name` takes.
Names inputs_of(const Schedule& s, const Names& all, const Name& name) {
    const char letter = std::get<0>(name);
    const int stage = std::get<1>(name);
    const int rank = std::get<2>(name);
    const int j = std::get<3>(name);
    const int last = s.stages - 1;
    Names inputs;
    const auto take = [&](char wanted_letter, int wanted_stage) {
        for (int anywhere = 0; anywhere < s.ranks; ++anywhere) {
            const Name candidate{wanted_letter, wanted_stage, anywhere, j};
            if (all.contains(candidate)) inputs.insert(candidate);
        }
    };
    if (letter == 'F' && stage == 0) take('E', -1);
    if (letter == 'F' && stage > 0) take('F', stage - 1);
    if (letter == 'S') take('F', last);
    if (letter == 'T') take('S', -1);
    if (letter == 'B' || letter == 'I') {
        take('F', stage);
        take('R', stage);
        if (stage < last) {
            take('B', stage + 1);
        } else {
            take(s.barriers == Barriers::one ? 'S' : 'T', -1);
        }
    }
    if (letter == 'R') take('F', stage);
    if (letter == 'W') inputs.insert({'I', stage, rank, j});
    if (letter == 'G') take('B', 0);
    return inputs;
}

/// Has the result been produced? The input-gradient half of a backward is what others wait for.
bool produced(const Names& done, const Name& name) {
    if (done.contains(name)) return true;
    Name half = name;
    std::get<0>(half) = 'I';
    return std::get<0>(name) == 'B' && done.contains(half);
}

bool map_is_sound(const ShardMap& map, int ranks) {
    if (static_cast<int>(map.first_row.size()) != ranks + 1 || map.first_row.at(0) != 0) {
        return false;
    }
    for (size_t i = 1; i < map.first_row.size(); ++i) {
        if (map.first_row.at(i) < map.first_row.at(i - 1)) return false;
    }
    return true;
}

}  // namespace

std::string brute_force_fault(const Schedule& s) {
    if (s.ranks < 1 || s.stages < 1 || s.microbatches < 1) return "nothing to run";
    if (static_cast<int>(s.passes.size()) != s.ranks) return "number of lists";
    if (static_cast<int>(s.rank_of_stage.size()) != s.stages) return "size of the placement";
    for (const int rank : s.rank_of_stage) {
        if (rank < 0 || rank >= s.ranks) return "stage on a rank that does not exist";
    }
    if (!map_is_sound(s.input, s.ranks) || !map_is_sound(s.output, s.ranks)) return "shard map";
    if (static_cast<int>(s.barriers) > 2) return "barriers";

    // Is it all there, once and nothing else?
    bool forward_only = true;
    for (const auto& list : s.passes) {
        for (const Pass& pass : list) {
            if (pass.op == Op::B || pass.op == Op::I || pass.op == Op::T) forward_only = false;
        }
    }
    const Names all = wanted(s, forward_only);
    std::vector<std::vector<Name>> lists;
    Names there;
    for (int rank = 0; rank < s.ranks; ++rank) {
        lists.emplace_back();
        for (const Pass& pass : s.passes.at(static_cast<size_t>(rank))) {
            const char letter = letter_of(pass.op);
            if (letter == '?') return "a pass that schedules do not have";
            const bool of_stage =
                letter == 'F' || letter == 'B' || letter == 'I' || letter == 'W' || letter == 'R';
            if (!of_stage && pass.stage != 0) return "a stage where there is none";
            const Name name{letter, of_stage ? int{pass.stage} : -1, rank,
                            static_cast<int>(pass.microbatch)};
            Name in_one_piece = name;
            if (of_stage && letter != 'F') std::get<0>(in_one_piece) = 'B';
            if (!all.contains(in_one_piece)) return print(name) + " has no business there";
            if (!there.insert(name).second) return print(name) + " twice";
            lists.back().push_back(name);
        }
    }
    for (const Name& name : all) {
        const bool whole = there.contains(name);
        if (std::get<0>(name) != 'B') {
            if (!whole) return print(name) + " is missing";
            continue;
        }
        Name i = name;
        Name w = name;
        std::get<0>(i) = 'I';
        std::get<0>(w) = 'W';
        const bool two_halves = there.contains(i) && there.contains(w);
        const bool a_half = there.contains(i) || there.contains(w);
        if (!(whole && !a_half) && !(two_halves && !whole)) return print(name) + " not just once";
    }

    // A node is a pass, or the two passes of a pair.
    std::vector<std::vector<std::vector<Name>>> nodes(lists.size());
    for (size_t rank = 0; rank < lists.size(); ++rank) {
        bool goes_on = false;
        for (size_t i = 0; i < lists[rank].size(); ++i) {
            if (goes_on) {
                nodes[rank].back().push_back(lists[rank][i]);
            } else {
                nodes[rank].push_back({lists[rank][i]});
            }
            goes_on = s.passes.at(rank).at(i).with_next;
        }
        if (goes_on) return "half a pair at the end";
        for (const auto& node : nodes[rank]) {
            std::string letters;
            for (const Name& name : node) letters += std::get<0>(name);
            const std::set<std::string> pairs{"FB", "FI", "BF", "IF"};
            if (letters.size() > 1 && !pairs.contains(letters)) return "a pair of " + letters;
        }
    }

    Names to_run = all;
    for (const Name& name : there) {
        if (std::get<0>(name) == 'R') to_run.insert(name);
    }

    // Does it run? Sweep over the ranks until a sweep changes nothing.
    Names done;
    std::vector<size_t> next(lists.size(), 0);
    bool moved = true;
    while (moved) {
        moved = false;
        for (size_t rank = 0; rank < lists.size(); ++rank) {
            if (next[rank] == nodes[rank].size()) continue;
            const auto& node = nodes[rank][next[rank]];
            bool ready = true;
            for (const Name& name : node) {
                for (const Name& input : inputs_of(s, to_run, name)) {
                    if (!produced(done, input)) ready = false;
                }
            }
            if (!ready) continue;
            done.insert(node.begin(), node.end());
            ++next[rank];
            moved = true;
        }
    }
    for (size_t rank = 0; rank < lists.size(); ++rank) {
        if (next[rank] < nodes[rank].size()) return print(nodes[rank][next[rank]][0]) + " waits";
    }
    return "";
}

Schedule random_valid_schedule(Schedule frame, bool forward_only, std::mt19937& random) {
    const Names needed = wanted(frame, forward_only);
    Names all = needed;
    std::vector<Name> open;
    const bool recomputes = random() % 3 == 0;
    for (const Name& name : needed) {
        Name half = name;
        if (recomputes && std::get<0>(name) == 'B' && random() % 2 == 0) {
            std::get<0>(half) = 'R';
            open.push_back(half);
            all.insert(half);
            half = name;
        }
        if (std::get<0>(name) == 'B' && random() % 2 == 0) {
            std::get<0>(half) = 'I';
            open.push_back(half);
            std::get<0>(half) = 'W';
        }
        open.push_back(half);
    }
    frame.passes.assign(static_cast<size_t>(frame.ranks), {});
    Names done;
    while (!open.empty()) {
        const size_t pick = random() % open.size();
        const Name name = open[pick];
        bool ready = true;
        for (const Name& input : inputs_of(frame, all, name)) {
            if (!produced(done, input)) ready = false;
        }
        if (!ready) continue;
        const auto& [letter, stage, rank, microbatch] = name;
        frame.passes.at(static_cast<size_t>(rank))
            .push_back({op_of(letter), static_cast<uint16_t>(stage < 0 ? 0 : stage),
                        static_cast<uint32_t>(microbatch)});
        done.insert(name);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(pick));
    }
    return frame;
}

}  // namespace vocabpipe::testing
