// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/disk/message_runs.hpp"
#include "src/select/memory_budget.hpp"
#include "src/select/packed_id.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace vocabpipe {

/// A sample of a part, and the gain of choosing it first.
struct PartNode {
    int64_t gain = 0;
    int64_t node = 0;
};

/// Most samples of a part: its edges name them by their place in it.
inline constexpr int64_t kMostPartNodes = int64_t{1} << 32;

/// An entry of the row of `node`, a sample of a part, whose neighbour `other` may be in it, too.
struct PartEntry {
    PackedId node, other;
    int32_t similarity = 0;
};

/// Finds the samples of a part by id: a table has the first index for every few ids.
class PartIndex {
public:
    /// `nodes`: ascending, and unchanged while it is used but for their gains.
    explicit PartIndex(std::span<const PartNode> nodes);

    /// Their place among the nodes; none if the sample is not in the part.
    [[nodiscard]] std::optional<uint32_t> find(int64_t node) const;
    /// Bytes of the table per sample.
    static constexpr uint64_t kBytes = 2;

private:
    static constexpr size_t kPerStep = 4;
    [[nodiscard]] size_t step_of(int64_t node) const { return static_cast<size_t>(node >> shift_); }

    std::span<const PartNode> nodes_;
    int shift_ = 0;
    std::vector<uint32_t> starts_;
};

/// The edges within a part: in memory, or, if they take too much of it, read again from a run of
/// entries as they are asked for.
class PartEdges {
public:
    /// Bytes of an entry in memory, and per sample of the part.
    static constexpr uint64_t kEntryBytes = sizeof(uint32_t) + sizeof(int32_t);
    static constexpr uint64_t kNodeBytes = sizeof(uint64_t) + sizeof(uint32_t) + PartIndex::kBytes;

    /// `nodes`: as for PartIndex. Entries take at most `most_bytes` of the budget, all of it at
    /// once: growing would take three times as much.
    PartEdges(MemoryBudget& memory, std::span<const PartNode> nodes, uint64_t most_bytes);

    /// Entries, those of a row one after the other; ones whose other end is not in the part are
    /// left out. Returns false when they have no room: then all are dropped.
    bool add(std::span<const PartEntry> entries);
    /// Instead: the entries of a run, which must outlive it.
    void read_from(MessageRuns& runs, int64_t run);

    /// Calls use(place of the other end, similarity) for the edges of the sample at this place.
    template <typename Use>
    void for_each(uint32_t at, const Use& use) const {
        const uint64_t begin = begins_[at];
        if (runs_ == nullptr) {
            for (uint64_t i = begin; i < begin + lengths_[at]; ++i)
                use(others_[i], similarities_[i]);
            return;
        }
        for (uint64_t i = begin; i < begin + lengths_[at]; ++i) {
            const auto entry = runs_->at<PartEntry>(run_, i);
            if (const auto other = index_.find(entry.other.value())) use(*other, entry.similarity);
        }
    }

private:
    PartIndex index_;
    uint64_t most_;  ///< entries
    MemoryLease lease_;
    std::vector<uint64_t> begins_;   ///< number of the first entry of each sample's row
    std::vector<uint32_t> lengths_;  ///< entries of each sample's row
    std::vector<uint32_t> others_;
    std::vector<int32_t> similarities_;
    MessageRuns* runs_ = nullptr;
    int64_t run_ = 0;
};

}  // namespace vocabpipe
