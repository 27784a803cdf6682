// SPDX-License-Identifier: Apache-2.0
#include "schedules/interleaved_table.hpp"

#include <algorithm>

namespace vocabpipe {

InterleavedTable::InterleavedTable(const ScheduleOptions& options)
    : ranks_(options.ranks),
      chunks_(options.rule.chunks),
      group_(std::min(options.rule.group_size == 0 ? options.ranks : options.rule.group_size,
                      options.microbatches)) {
    int microbatches = options.microbatches;
    const int least = std::min(group_, ranks_);
    if (const int rest = microbatches % group_; rest != 0 && rest < least) {
        microbatches += least - rest;
    }
    entries_.reserve(static_cast<size_t>(microbatches) * static_cast<size_t>(chunks_));
    for (int first = 0; first < microbatches; first += group_) {
        const int end = std::min(microbatches, first + group_);
        for (int chunk = 0; chunk < chunks_; ++chunk) {
            for (int j = first; j < end; ++j) entries_.push_back({chunk, j});
        }
    }
}

std::vector<int> InterleavedTable::stages(int rank) const {
    std::vector<int> stages;
    for (int chunk = 0; chunk < chunks_; ++chunk) stages.push_back(chunk * ranks_ + rank);
    return stages;
}

int64_t InterleavedTable::warm_up(int rank, int per_rank) const {
    const int64_t group = group_;
    const int64_t lead = int64_t{per_rank} * (ranks_ - 1 - rank);
    return std::min((chunks_ - 1) * group + std::min(lead, 2 * group), size());
}

}  // namespace vocabpipe
