// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/hash.hpp"
#include "src/select/packed_id.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"
#include "vocabpipe/bounding_rule.hpp"

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace vocabpipe {

/// One Shrink or Grow.
struct BoundingStep {
    bool grow = false;
    int64_t threshold = 0;  ///< times alpha
    int64_t decided = 0;

    bool operator==(const BoundingStep&) const = default;
};

/// Results of bounding over all ranks.
struct BoundingReport {
    std::vector<BoundingStep> steps;
    int64_t selected = 0, discarded = 0;
    int64_t k_left = 0;  ///< samples still to be chosen from the open ones
    int64_t open = 0;
    /// If bounding has decided nothing though there was something to decide, and --alpha is not 0:
    /// the smallest larger --alpha, up to kMostObjectiveWeight, with which it would; 0: none.
    std::optional<int64_t> deciding_alpha;
    /// Messages if every step had joined the rows of all open samples anew.
    int64_t rejoin_tuples = 0;

    bool operator==(const BoundingReport&) const = default;
};

/// Repeats Shrink until nothing changes, then Grow until nothing changes, until neither does
/// (algorithm 5). Each decision is sent to the owners of the neighbours once, so an edge's row
/// entry costs at most one message over all steps. With a quota, a step whose messages all wait
/// together reads at most the rows of the samples that it decides and those of their neighbours;
/// others read the latter once more for each time that messages are recorded. Collective.
class Bounding {
public:
    /// Bytes of a rank besides the state: lower bounds, and for a quota two bits per row entry, and
    /// messages; of one block, if there are several.
    [[nodiscard]] static uint64_t bytes(const BoundingRule& rule, const StateBlocks& blocks,
                                        int64_t nodes, int64_t entries, int64_t longest_row);

    /// `state`: all open, with upper bounds alpha * utility. `entries`: in the rows of this rank.
    Bounding(SelectContext& context, SelectionState& state, const BoundingRule& rule, int64_t k,
             int64_t entries, int64_t longest_row);

    /// Call for each row of this rank once, in ascending order, before run(). InputFileError if its
    /// sums do not fit in 64 bits.
    void begin_row(const GraphRow& row);
    /// Goes on after the steps of a run that was ended: `state` has its decisions. Call it after
    /// begin_row() of all rows; the bounds follow from rows and decisions. Collective.
    void go_on_from(const BoundingReport& report);
    /// `after_step` is called after each step; so_far() and the state then are what go_on_from()
    /// needs. May be empty.
    BoundingReport run(const std::function<void()>& after_step = {});
    /// What was decided up to now. Collective.
    [[nodiscard]] BoundingReport so_far() const;

private:
    struct Told {
        PackedId node;   ///< a neighbour of the decided sample
        PackedId other;  ///< quota: the decided sample; else its similarity and whether it counted

        auto operator<=>(const Told&) const = default;
    };
    struct InOrder {
        uint64_t place;
        int32_t similarity;

        auto operator<=>(const InOrder&) const = default;
    };

    [[nodiscard]] int64_t deciding_alpha() const;
    [[nodiscard]] bool would_decide(int64_t alpha) const;
    int64_t shrink();
    int64_t grow();
    int64_t tell(bool grown);
    void receive(std::span<const Told> told, bool grown);
    void receive_quota(std::span<const Told> told, bool grown);
    [[nodiscard]] bool counts(int64_t node, int64_t neighbour) const;
    [[nodiscard]] int64_t counted_sum(const GraphRow& row);
    void record(bool grown, bool all);
    void end_quota_block(int64_t first, int64_t last, bool grown);
    void recount(const GraphRow& row);
    [[nodiscard]] bool enough_decided() const { return k_ == 0 || open_ <= k_; }
    /// Messages that wait to be recorded, if a block has so many samples. Recording reads the rows
    /// of receivers, which lie all over the file: with a message for every fourth sample, a step
    /// that decides little reads them once, and all steps together at most deg * 4 times more.
    [[nodiscard]] static constexpr size_t most_pending(int64_t nodes) {
        return static_cast<size_t>(nodes) / 4 + 1024;
    }
    [[nodiscard]] uint64_t place_of(int64_t node, int64_t neighbour, int32_t similarity) const;
    [[nodiscard]] int64_t u_low(int64_t node) const { return u_low_[node - state_.first()]; }
    [[nodiscard]] int64_t& edit_u_low(int64_t node) { return u_low_.edit(node - state_.first()); }
    [[nodiscard]] Decision neighbour_is(int64_t entry) const {
        return static_cast<Decision>(neighbours_[entry >> 2] >> (entry & 3) * 2 & 3);
    }

    SelectContext& context_;
    SelectionState& state_;
    BoundingRule rule_;
    int64_t k_;
    MemoryLease lease_;
    BlockedArray<int64_t> u_low_;
    BlockedArray<uint8_t> neighbours_;  ///< quota: a Decision for every entry of this rank's rows
    std::vector<InOrder> in_order_;     ///< of one row
    std::vector<Told> pending_;         ///< quota: messages to be recorded
    bool recorded_in_parts_ = false;    ///< quota: in this block of this step
    GraphRows rows_, told_rows_;
    int64_t first_entry_ = -1;
    int64_t open_ = 0;          ///< samples on all ranks
    int64_t live_entries_ = 0;  ///< entries in the rows of this rank's open samples
    BoundingReport report_;
};

}  // namespace vocabpipe
