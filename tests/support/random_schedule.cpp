// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_schedule.hpp"

#include "tests/support/brute_force_checker.hpp"

#include <algorithm>
#include <sstream>

namespace vocabpipe::testing {

namespace {

int up_to(int limit, std::mt19937& random) {
    return static_cast<int>(random() % static_cast<uint32_t>(limit + 1));
}

ShardMap random_shard_map(int ranks, int64_t vocab_size, std::mt19937& random) {
    const int kind = up_to(5, random);
    if (kind == 0) return ShardMap::whole(vocab_size, ranks, up_to(ranks - 1, random));
    if (kind == 1) return ShardMap::even(vocab_size, ranks);
    // Random cuts; with few of them different, shards are empty.
    ShardMap map;
    const int64_t grain = kind == 2   ? vocab_size
                          : kind == 3 ? std::max<int64_t>(vocab_size / 2, 1)
                                      : 1;
    for (int i = 1; i < ranks; ++i) {
        const int64_t cut = static_cast<int64_t>(random() % static_cast<uint64_t>(vocab_size + 1));
        map.first_row.push_back(std::min(vocab_size, cut / grain * grain));
    }
    map.first_row.push_back(0);
    map.first_row.push_back(vocab_size);
    std::sort(map.first_row.begin(), map.first_row.end());
    return map;
}

}  // namespace

Schedule random_schedule(std::mt19937& random, int ranks, int stages, int microbatches,
                         int64_t vocab_size, bool forward_only) {
    Schedule frame;
    frame.ranks = ranks;
    frame.stages = stages;
    frame.microbatches = microbatches;
    for (int stage = 0; stage < stages; ++stage) {
        frame.rank_of_stage.push_back(up_to(ranks - 1, random));
    }
    frame.input = random_shard_map(ranks, vocab_size, random);
    frame.output = random() % 3 == 0 ? frame.input : random_shard_map(ranks, vocab_size, random);
    frame.barriers = static_cast<Barriers>(up_to(2, random));
    return random_valid_schedule(std::move(frame), forward_only, random);
}

Schedule random_schedule(std::mt19937& random, const RandomScheduleOptions& options) {
    const int ranks = 1 + up_to(options.most_ranks - 1, random);
    const int stages = 1 + up_to(options.most_stages - 1, random);
    const int microbatches = 1 + up_to(options.most_microbatches - 1, random);
    const bool forward_only =
        options.one_in_forward_only > 0 && up_to(options.one_in_forward_only - 1, random) == 0;
    return random_schedule(random, ranks, stages, microbatches, options.vocab_size, forward_only);
}

std::string mutate(Schedule& schedule, std::mt19937& random) {
    auto& lists = schedule.passes;
    const auto any_list = [&]() -> std::vector<Pass>& {
        for (;;) {  // there is a pass somewhere
            auto& list = lists[static_cast<size_t>(up_to(schedule.ranks - 1, random))];
            if (!list.empty()) return list;
        }
    };
    const auto any_index = [&](const std::vector<Pass>& list) {
        return static_cast<size_t>(up_to(static_cast<int>(list.size()) - 1, random));
    };
    switch (up_to(14, random)) {
        case 0: {
            auto& list = any_list();
            const size_t a = any_index(list);
            const size_t b = any_index(list);
            std::swap(list[a], list[b]);
            return "swapped positions " + std::to_string(a) + " and " + std::to_string(b);
        }
        case 1:
        case 2:
        case 3: {
            auto& list = any_list();
            const size_t a = any_index(list);
            if (a + 1 < list.size()) std::swap(list[a], list[a + 1]);
            return "swapped position " + std::to_string(a) + " and the next";
        }
        case 4: {
            auto& list = any_list();
            const size_t a = any_index(list);
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(a));
            return "dropped position " + std::to_string(a);
        }
        case 5: {
            auto& list = any_list();
            const Pass pass = list[any_index(list)];
            list.insert(list.begin() + static_cast<std::ptrdiff_t>(any_index(list)), pass);
            return "doubled " + to_string(pass);
        }
        case 6: {
            auto& from = any_list();
            const size_t a = any_index(from);
            const Pass pass = from[a];
            from.erase(from.begin() + static_cast<std::ptrdiff_t>(a));
            auto& to = lists[static_cast<size_t>(up_to(schedule.ranks - 1, random))];
            const int at = up_to(static_cast<int>(to.size()), random);
            to.insert(to.begin() + at, pass);
            return "moved " + to_string(pass);
        }
        case 7: {
            auto& list = any_list();
            Pass& pass = list[any_index(list)];
            const std::string before = to_string(pass);
            const int what = up_to(2, random);
            if (what == 0) pass.op = static_cast<Op>(up_to(11, random));
            if (what == 1) pass.microbatch = static_cast<uint32_t>(up_to(5, random));
            if (what == 2) pass.stage = static_cast<uint16_t>(up_to(6, random));
            return "made " + before + " to " + to_string(pass);
        }
        case 8: {
            const int stage = up_to(schedule.stages - 1, random);
            schedule.rank_of_stage[static_cast<size_t>(stage)] = up_to(schedule.ranks, random);
            return "moved stage " + std::to_string(stage);
        }
        case 9: {
            ShardMap& map = random() % 2 == 0 ? schedule.input : schedule.output;
            const auto cut = static_cast<size_t>(up_to(schedule.ranks, random));
            const bool last = cut == static_cast<size_t>(schedule.ranks);
            if (!last) map.first_row[cut] += random() % 2 == 0 ? 1 : -1;
            return "moved the cut of a shard";
        }
        case 10:
            schedule.barriers = static_cast<Barriers>(up_to(2, random));
            return "changed the barriers";
        case 11:
        case 12:
        case 13: {
            // Sound on its own rank, but in another order than on the others.
            auto& list = any_list();
            const auto a = static_cast<uint32_t>(up_to(schedule.microbatches, random));
            const auto b = static_cast<uint32_t>(up_to(schedule.microbatches, random));
            const bool vocabulary_only = random() % 2 == 0;
            for (Pass& pass : list) {
                if (vocabulary_only && !traits(pass.op).vocabulary) continue;
                pass.microbatch = pass.microbatch == a   ? b
                                  : pass.microbatch == b ? a
                                                         : pass.microbatch;
            }
            return "exchanged microbatches " + std::to_string(a) + " and " + std::to_string(b);
        }
        default:
            schedule.microbatches += up_to(2, random) - 1;
            return "changed the number of microbatches";
    }
}

std::string describe(const Schedule& schedule) {
    std::ostringstream out;
    out << schedule.ranks << " ranks, " << schedule.microbatches << " microbatches, barriers "
        << static_cast<int>(schedule.barriers) << "\nstages on ranks";
    for (const int rank : schedule.rank_of_stage) out << " " << rank;
    out << "\ninput rows";
    for (const int64_t row : schedule.input.first_row) out << " " << row;
    out << "\noutput rows";
    for (const int64_t row : schedule.output.first_row) out << " " << row;
    for (const auto& list : schedule.passes) {
        out << "\n ";
        for (const Pass& pass : list) out << " " << to_string(pass);
    }
    return out.str();
}

}  // namespace vocabpipe::testing
