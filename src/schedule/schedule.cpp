// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/schedule.hpp"

#include "src/support/names_of.hpp"

#include <array>

namespace vocabpipe {

namespace {

constexpr std::array<std::string_view, 5> kVocabModeNames{"none", "redistributed", "interlaced",
                                                          "one_barrier", "two_barriers"};

}  // namespace

ShardMap ShardMap::even(int64_t vocab_size, int ranks) {
    ShardMap map;
    for (int rank = 0; rank <= ranks; ++rank) map.first_row.push_back(vocab_size * rank / ranks);
    return map;
}

ShardMap ShardMap::whole(int64_t vocab_size, int ranks, int owner) {
    ShardMap map;
    for (int rank = 0; rank <= ranks; ++rank)
        map.first_row.push_back(rank > owner ? vocab_size : 0);
    return map;
}

std::vector<int> ShardMap::owners() const {
    std::vector<int> owners;
    for (int rank = 0; rank < ranks(); ++rank) {
        if (rows(rank) > 0) owners.push_back(rank);
    }
    return owners;
}

std::string_view to_string(VocabMode mode) {
    return kVocabModeNames[static_cast<size_t>(mode)];
}

VocabMode vocab_mode_from(std::string_view name) {
    return value_named("--vocab-mode", name,
                       {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                        VocabMode::one_barrier, VocabMode::two_barriers});
}

bool sharded(VocabMode mode) {
    return mode != VocabMode::none && mode != VocabMode::redistributed;
}

int extra_microbatches(VocabMode mode) {
    return mode == VocabMode::two_barriers ? 2 : sharded(mode) ? 1 : 0;
}

void place_vocabulary(Schedule& schedule, VocabMode mode, int64_t vocab_size) {
    const int p = schedule.ranks;
    if (sharded(mode)) {
        schedule.input = schedule.output = ShardMap::even(vocab_size, p);
    } else {
        schedule.input = ShardMap::whole(vocab_size, p, schedule.rank_of_stage.front());
        schedule.output = ShardMap::whole(vocab_size, p, schedule.rank_of_stage.back());
    }
    schedule.barriers = mode == VocabMode::one_barrier    ? Barriers::one
                        : mode == VocabMode::two_barriers ? Barriers::two
                                                          : Barriers::in_line;
}

Schedule evaluation_schedule(Schedule training) {
    for (std::vector<Pass>& list : training.passes) {
        std::erase_if(list, [](const Pass& pass) {
            return pass.op != Op::F && pass.op != Op::E && pass.op != Op::S;
        });
        for (Pass& pass : list) pass.with_next = false;  // the other may have been a backward
    }
    return training;
}

bool Schedule::forward_only() const {
    for (const std::vector<Pass>& list : passes) {
        for (const Pass& pass : list) {
            if (pass.op == Op::B || pass.op == Op::I || pass.op == Op::T) return false;
        }
    }
    return true;
}

}  // namespace vocabpipe
