// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <cstdint>
#include <vector>

// Shared by the interleaved families: the order in which every rank runs its chunks.

namespace vocabpipe {

/// Order of the forwards: microbatches in groups of N; in a group, chunk after chunk, each with all
/// microbatches of the group. Entry q is the q-th forward of every rank; the q-th backward is the
/// same with the chunks counted from the last.
class InterleavedTable {
public:
    /// N is `group_size`, or p, and never more than m (one group, as torch does for m < p). A last
    /// group below min(N, p) is filled up with microbatches that do not exist, which callers drop:
    /// a shorter group would make the ranks that wait for its return wait in a cycle.
    explicit InterleavedTable(const ScheduleOptions& options);

    struct Entry {
        int chunk;
        int microbatch;
    };
    [[nodiscard]] int64_t size() const { return static_cast<int64_t>(entries_.size()); }
    [[nodiscard]] Entry forward(int64_t q) const { return entries_[static_cast<size_t>(q)]; }
    [[nodiscard]] Entry backward(int64_t q) const {
        const Entry entry = forward(q);
        return {chunks_ - 1 - entry.chunk, entry.microbatch};
    }
    [[nodiscard]] std::vector<int> stages(int rank) const;

    /// Forwards of a rank before its first backward: (v-1)N until the first microbatch has passed
    /// all chunks of the last rank, and `per_rank` more for every rank above the last. The ranks'
    /// warm-ups may differ by 2N at most, otherwise a forward would wait for the backward that
    /// follows it (only for N < p-1).
    [[nodiscard]] int64_t warm_up(int rank, int per_rank) const;

private:
    int ranks_, chunks_, group_;
    std::vector<Entry> entries_;
};

}  // namespace vocabpipe
