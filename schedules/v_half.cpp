// SPDX-License-Identifier: Apache-2.0
// v_half and v_min: a fixed pattern is repeated, then passes at both ends move to earlier slots.
#include "schedules/families.hpp"

#include "schedules/v_pattern.hpp"
#include "schedules/v_pattern_ends.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <utility>

namespace vocabpipe {

namespace {

using namespace v_pattern;

// While the order is made, both chunks share one kind of W: the k-th belongs to the rank's k-th I
// of either chunk.
constexpr Kind kSharedW = W1;

/// Puts into every free slot a W whose I has run; the rest follow the last pass. `shared`: with
/// kSharedW; else chunk 1 goes first.
void fill_in_weights(Row& row, bool shared) {
    const Row without = std::exchange(row, {});
    row.reserve(without.size() * 3 / 2);
    std::array<int, kKinds> waiting{};
    const auto take = [&](int64_t at) {
        const Kind kind = waiting[W1] > 0 ? W1 : W0;
        if (waiting[kind] == 0) return false;
        --waiting[kind];
        row.push_back({at, kind});
        return true;
    };
    int64_t now = 0;
    for (const Cell& cell : without) {
        while (now < cell.at && take(now)) ++now;
        row.push_back(cell);
        now = cell.at + 1;
        if (!is_forward(cell.kind)) ++waiting[shared || cell.kind == I1 ? W1 : W0];
    }
    while (take(now)) ++now;
}

void drop_weights(Rows& rows) {
    for (Row& row : rows) std::erase_if(row, [](const Cell& cell) { return is_weight(cell.kind); });
}

/// Moves passes of the warm-up and of the cool-down to earlier slots, as far as inputs and the
/// largest peak of any rank allow. If the rows have no W yet, peaks are those with W filled in, and
/// the warm-up does not change.
class Reorder {
public:
    Reorder(Rows& rows, int microbatches, bool with_weights)
        : rows_(rows), microbatches_(microbatches), with_weights_(with_weights) {
        for (const Row& row : rows) limit_ = std::max(limit_, filled_peak(row));
        ends_.resize(rows.size() * kKinds);
        taken_.resize(rows.size());
    }

    void run() {
        // The steady state: from rank 0's first I0 to its last F0, both included.
        bool warm_up = true;
        int forwards_left = microbatches_;
        for (const auto& [at, rank, kind] : in_time()) {
            if (rank == 0 && kind == I0) warm_up = false;
            const bool stays = warm_up ? !with_weights_ : forwards_left > 0;
            if (rank == 0 && kind == F0) --forwards_left;
            int64_t slot = at;
            if (!stays && !is_first_i0(rank, kind)) slot = earliest(rank, kind, at);
            if (slot < at) relocate(rows_[static_cast<size_t>(rank)], at, slot);
            ends(kind, rank).push_back(slot + 1);
            taken_[static_cast<size_t>(rank)].insert(slot);
        }
    }

private:
    struct Moment {
        int64_t at;
        int rank;
        Kind kind;
    };

    std::vector<int64_t>& ends(Kind kind, int rank) {
        return ends_[static_cast<size_t>(rank) * kKinds + static_cast<size_t>(kind)];
    }

    bool is_first_i0(int rank, Kind kind) {
        return rank == 0 && kind == I0 && ends(kind, rank).empty();
    }

    int filled_peak(const Row& row) const {
        if (with_weights_) return peak(row);
        Row filled = row;
        fill_in_weights(filled, true);
        return peak(filled);
    }

    std::vector<Moment> in_time() const {
        std::vector<Moment> moments;
        for (size_t r = 0; r < rows_.size(); ++r) {
            for (const Cell& cell : rows_[r]) {
                moments.push_back({cell.at, static_cast<int>(r), cell.kind});
            }
        }
        std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
            return std::pair{a.at, a.rank} < std::pair{b.at, b.rank};
        });
        return moments;
    }

    /// When the inputs of the next pass of this kind are ready.
    int64_t ready(int rank, Kind kind) {
        const std::vector<int64_t>& mine = ends(kind, rank);
        const size_t k = mine.size();
        const int64_t previous = mine.empty() ? 0 : mine.back();
        if (kind == kSharedW) {
            std::vector<int64_t> gradients = ends(I1, rank);
            gradients.insert(gradients.end(), ends(I0, rank).begin(), ends(I0, rank).end());
            const auto kth = gradients.begin() + static_cast<std::ptrdiff_t>(k);
            std::nth_element(gradients.begin(), kth, gradients.end());
            return std::max(previous, *kth);
        }
        const Input input = input_of(kind, rank, static_cast<int>(rows_.size()));
        if (input.rank < 0) return previous;
        return std::max(previous, ends(input.kind, input.rank)[k]);
    }

    int64_t earliest(int rank, Kind kind, int64_t at) {
        for (int64_t slot = ready(rank, kind); slot < at; ++slot) {
            if (taken_[static_cast<size_t>(rank)].contains(slot)) continue;
            Row moved = rows_[static_cast<size_t>(rank)];
            relocate(moved, at, slot);
            if (filled_peak(moved) <= limit_) return slot;
        }
        return at;
    }

    static void relocate(Row& row, int64_t from, int64_t to) {
        const auto before = [](const Cell& cell, int64_t at) { return cell.at < at; };
        const auto first = std::lower_bound(row.begin(), row.end(), to, before);
        const auto last = std::lower_bound(first, row.end(), from, before);
        last->at = to;
        std::rotate(first, last, last + 1);
    }

    Rows& rows_;
    int microbatches_;
    bool with_weights_;
    int limit_ = 0;
    std::vector<std::vector<int64_t>> ends_;  // [rank, kind][k] of the passes handled so far
    std::vector<std::set<int64_t>> taken_;    // [rank] their slots
};

/// Moves every pass to the earliest time that its inputs allow, in the same order.
void squeeze(Rows& rows) {
    order_weights(rows);
    (void)Clock().run(rows, Costs::unit(static_cast<int>(rows.size())));
    for (Row& row : rows) {
        for (Cell& cell : row) cell.kind = is_weight(cell.kind) ? kSharedW : cell.kind;
    }
}

Schedule from_pattern(const ScheduleOptions& options, const Pattern& pattern) {
    Rows rows = repeat(pattern, kDataflow, options.microbatches);
    const auto fill = [&](bool shared) {
        for (Row& row : rows) fill_in_weights(row, shared);
    };
    fill(true);
    Reorder(rows, options.microbatches, true).run();
    squeeze(rows);
    drop_weights(rows);
    Reorder(rows, options.microbatches, false).run();
    fill(true);
    squeeze(rows);
    drop_weights(rows);
    fill(false);
    return schedule_of(rows, options, true);
}

}  // namespace

Schedule v_half(const ScheduleOptions& options) {
    const int64_t p = options.ranks;
    const int64_t pause = p % 2 == 0 ? 3 : 0;  // keeps I1 off the slots of the forwards
    Pattern pattern;
    for (int64_t r = 0; r < p; ++r) {
        pattern.push_back({2 * r, 3 * p - r - 2, 3 * p + pause + 2 * r - 1, 6 * p + pause - r - 2});
    }
    return from_pattern(options, pattern);
}

Schedule v_min(const ScheduleOptions& options) {
    const int64_t p = options.ranks;
    const int64_t pause = p % 3 == 0 ? 2 : 0;
    Pattern pattern;
    for (int64_t r = 0; r < p; ++r) {
        pattern.push_back({r, 2 * p - r - 1, 2 * p + pause + r, 4 * p + pause - r - 1});
    }
    return from_pattern(options, pattern);
}

}  // namespace vocabpipe
