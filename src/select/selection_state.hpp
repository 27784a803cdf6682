// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/disk/blocked_array.hpp"
#include "src/select/disk/state_blocks.hpp"
#include "src/select/memory_budget.hpp"

#include <cstdint>

namespace vocabpipe {

/// The decision about a sample.
enum class Decision : uint8_t {
    open,       ///< may be chosen
    selected,   ///< chosen by bounding
    discarded,  ///< not chosen
};

/// A rank's state of the samples that it owns: 17 bytes each during bounding, 9 afterwards. With
/// several blocks, accesses should go through samples in ascending order.
class SelectionState {
public:
    /// For the samples [first, last), all open.
    SelectionState(MemoryBudget& memory, int64_t first, int64_t last,
                   const StateBlocks& blocks = {});

    [[nodiscard]] int64_t first() const { return first_; }
    [[nodiscard]] int64_t last() const { return first_ + size(); }
    [[nodiscard]] int64_t size() const { return marks_.size(); }
    /// Samples of a block.
    [[nodiscard]] int64_t block_length() const { return block_length_; }
    /// Whether the sample is this rank's and in the block of the last access.
    [[nodiscard]] bool holds(int64_t node) const { return marks_.holds(index(node)); }

    [[nodiscard]] Decision decision(int64_t node) const {
        return static_cast<Decision>(marks_[index(node)] & kDecision);
    }
    [[nodiscard]] bool is_open(int64_t node) const { return decision(node) == Decision::open; }
    /// Whether it is selected or open.
    [[nodiscard]] bool is_in(int64_t node) const { return decision(node) != Decision::discarded; }
    void decide(int64_t node, Decision decision) {
        uint8_t& mark = marks_.edit(index(node));
        mark = static_cast<uint8_t>((mark & ~kDecision) | static_cast<uint8_t>(decision));
    }
    /// A temporary mark, for use within one phase.
    [[nodiscard]] bool marked(int64_t node) const { return (marks_[index(node)] & kMark) != 0; }
    void mark(int64_t node) { marks_.edit(index(node)) |= kMark; }
    void unmark(int64_t node) { marks_.edit(index(node)) &= static_cast<uint8_t>(~kMark); }

    /// alpha * utility - beta * similarities to selected neighbours.
    [[nodiscard]] int64_t u_max(int64_t node) const { return u_max_[index(node)]; }
    /// The same, for writing.
    [[nodiscard]] int64_t& edit_u_max(int64_t node) { return u_max_.edit(index(node)); }

    /// Calls use(node) for this rank's open samples, in ascending order.
    template <typename Use>
    void for_each_open(const Use& use) const {
        for (int64_t at = 0; at < size();) {
            for (const uint8_t mark : marks_.rest_of_block(at)) {
                if (static_cast<Decision>(mark & kDecision) == Decision::open) use(first_ + at);
                ++at;
            }
        }
    }
    /// This rank's number of samples with the decision.
    [[nodiscard]] int64_t count(Decision decision) const;

    /// Bytes per sample, without and with bounding's lower bounds.
    static constexpr uint64_t kBytes = 9, kBytesWhileBounding = 17;

private:
    static constexpr uint8_t kDecision = 3, kMark = 4;
    [[nodiscard]] int64_t index(int64_t node) const { return node - first_; }

    int64_t first_, block_length_;
    MemoryLease lease_;
    BlockedArray<uint8_t> marks_;
    BlockedArray<int64_t> u_max_;
};

}  // namespace vocabpipe
