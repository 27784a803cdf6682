// SPDX-License-Identifier: Apache-2.0
#include "src/select/bounding.hpp"

#include "src/select/deliver.hpp"
#include "src/select/radix_select.hpp"
#include "src/select/weighted_order.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int64_t kCounted = int64_t{1} << 31;  // flag in a similarity, which is not negative
constexpr int64_t kBoundingReportEvery = 1024;  // rows

/// Which step comes next: Shrink until it decides nothing, then Grow, until neither does.
struct NextStep {
    bool grow = false, ended = false;

    void after(int64_t decided) {
        changed = changed || decided > 0;
        if (decided > 0) return;
        ended = grow && !changed;
        if (grow) changed = false;
        grow = !grow;
    }

private:
    bool changed = false;  ///< since Shrink began
};

/// The k-th largest bound of all open samples, on all ranks.
template <typename Bound>
int64_t threshold_of(SelectContext& context, const SelectionState& state, int64_t k,
                     const Bound& bound) {
    return kth_largest(context.world, k, [&](const auto& use) {
        state.for_each_open([&](int64_t v) { use(bound(v)); });
    });
}

}  // namespace

uint64_t Bounding::bytes(const BoundingRule& rule, const StateBlocks& blocks, int64_t nodes,
                         int64_t entries, int64_t longest_row) {
    if (rule.kind == BoundingRule::Kind::off) return 0;
    const int64_t length = std::min(blocks.length(nodes, nodes), nodes);
    const uint64_t bounds = static_cast<uint64_t>(length) * sizeof(int64_t);
    if (!rule.has_quota()) return bounds;
    return bounds + static_cast<uint64_t>(blocks.length(nodes, (entries + 3) / 4)) +
           static_cast<uint64_t>(longest_row) * sizeof(InOrder) +
           most_pending(length) * sizeof(Told);
}

Bounding::Bounding(SelectContext& context, SelectionState& state, const BoundingRule& rule,
                   int64_t k, int64_t entries, int64_t longest_row)
    : context_(context),
      state_(state),
      rule_(rule),
      k_(k),
      lease_(context.memory, bytes(rule, context.blocks, state.size(), entries, longest_row),
             "bounding"),
      u_low_(rule.kind == BoundingRule::Kind::off ? 0 : state.size(), state.block_length(),
             context.blocks.folder),
      neighbours_(rule.has_quota() ? (entries + 3) / 4 : 0,
                  context.blocks.length(state.size(), (entries + 3) / 4), context.blocks.folder),
      rows_(context.graph),
      told_rows_(context.graph),
      open_(context.graph.nodes()),
      live_entries_(entries) {
    if (!rule_.has_quota()) return;
    in_order_.reserve(static_cast<size_t>(longest_row));
    pending_.reserve(most_pending(state.block_length()));
}

bool Bounding::counts(int64_t node, int64_t neighbour) const {
    return rule_.kind == BoundingRule::Kind::exact ||
           coin(context_.seed, static_cast<uint64_t>(node), static_cast<uint64_t>(neighbour),
                rule_.share);
}

void Bounding::begin_row(const GraphRow& row) {
    constexpr int64_t kMost = int64_t{1} << 61;
    int64_t sum = 0;  // at most 2^32 similarities below 2^31
    for (const int32_t similarity : row.similarities) sum += similarity;
    if (context_.objective.beta > 0 && sum > kMost / context_.objective.beta) {
        throw InputFileError(context_.graph.path() + ": row " + std::to_string(row.node) +
                             ": its similarities sum to " + std::to_string(sum) +
                             ", times --beta beyond 2^61; use a smaller --beta");
    }
    if (rule_.kind == BoundingRule::Kind::off) return;
    if (first_entry_ < 0) first_entry_ = row.begin;
    int64_t counted = 0;
    if (rule_.kind == BoundingRule::Kind::exact) {
        counted = sum;
    } else if (rule_.has_quota()) {
        counted = counted_sum(row);
    } else {
        for (size_t i = 0; i < row.degree(); ++i) {
            if (counts(row.node, row.neighbours[i])) counted += row.similarities[i];
        }
    }
    edit_u_low(row.node) = state_.u_max(row.node) - context_.objective.beta * counted;
}

/// Neighbours with the smallest places count.
uint64_t Bounding::place_of(int64_t node, int64_t neighbour, int32_t similarity) const {
    const uint64_t hash =
        hash_of(context_.seed, static_cast<uint64_t>(node), static_cast<uint64_t>(neighbour));
    return rule_.kind == BoundingRule::Kind::quota ? hash : weighted_order(hash, similarity);
}

int64_t Bounding::counted_sum(const GraphRow& row) {
    const int64_t degree = std::ssize(row.neighbours);
    int64_t quota =
        (rule_.share.numerator * degree + rule_.share.denominator - 1) / rule_.share.denominator;
    in_order_.clear();
    const int64_t entry = row.begin - first_entry_;
    for (int64_t i = 0; i < degree; ++i) {
        const Decision decision = neighbour_is(entry + i);
        if (decision == Decision::selected) --quota;
        if (decision != Decision::open) continue;
        const auto at = static_cast<size_t>(i);
        in_order_.push_back({.place = place_of(row.node, row.neighbours[at], row.similarities[at]),
                             .similarity = row.similarities[at]});
    }
    quota = std::clamp<int64_t>(quota, 0, std::ssize(in_order_));
    // Hashes within a row are distinct. Of weighted places that are equal, the smaller similarity
    // comes first, so that the sum does not depend on which of several equals are taken.
    std::ranges::nth_element(in_order_, in_order_.begin() + quota);
    int64_t sum = 0;
    for (int64_t i = 0; i < quota; ++i) sum += in_order_[static_cast<size_t>(i)].similarity;
    return sum;
}

BoundingReport Bounding::run(const std::function<void()>& after_step) {
    NextStep next;
    for (const BoundingStep& step : report_.steps) next.after(step.decided);
    while (rule_.kind != BoundingRule::Kind::off && !next.ended) {
        next.after(next.grow ? grow() : shrink());
        if (after_step) after_step();
    }
    report_ = so_far();
    // Upper bounds are alpha times the utilities, which alpha = 0 does not show.
    if (!report_.steps.empty() && report_.selected == 0 && report_.discarded == 0 &&
        context_.objective.alpha > 0) {
        report_.deciding_alpha = deciding_alpha();
    }
    return report_;
}

BoundingReport Bounding::so_far() const {
    BoundingReport report = report_;
    report.k_left = k_;
    report.open = open_;
    report.rejoin_tuples = sum_over_ranks(context_.world, report_.rejoin_tuples);
    return report;
}

void Bounding::go_on_from(const BoundingReport& report) {
    report_ = report;
    if (context_.world.rank() != 0) report_.rejoin_tuples = 0;  // the sum over ranks
    k_ = report.k_left;
    open_ = report.open;
    for (const Decision decision : {Decision::selected, Decision::discarded}) {
        for (int64_t v = state_.first(); v < state_.last(); ++v) {
            if (state_.decision(v) == decision) state_.mark(v);
        }
        (void)tell(decision == Decision::selected);
    }
}

/// What would_decide() says never becomes false again as alpha grows: how far the k-th largest
/// lower bound is above the least upper bound, and a lower bound above the k-th largest utility
/// times alpha, are sums of alpha times a difference of utilities that is at least 0, and of
/// constants.
int64_t Bounding::deciding_alpha() const {
    int64_t low = context_.objective.alpha + 1;
    int64_t high = kMostObjectiveWeight;
    if (low > high || !would_decide(high)) return 0;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        would_decide(middle) ? high = middle : low = middle + 1;
    }
    return high;
}

/// Whether the first Shrink or Grow would decide anything. Nothing was decided yet.
bool Bounding::would_decide(int64_t alpha) const {
    const auto upper = [&](int64_t v) {
        return state_.u_max(v) / context_.objective.alpha * alpha;
    };
    const auto lower = [&](int64_t v) { return upper(v) - (state_.u_max(v) - u_low(v)); };
    const int64_t discarded_below = threshold_of(context_, state_, k_, lower);
    const int64_t selected_above = threshold_of(context_, state_, k_, upper);
    bool decides = false;
    for (int64_t v = state_.first(); v < state_.last() && !decides; ++v) {
        decides = upper(v) < discarded_below || lower(v) > selected_above;
    }
    return largest_over_ranks(context_.world, decides ? 1 : 0) > 0;
}

int64_t Bounding::shrink() {
    if (enough_decided()) return 0;
    const int64_t threshold =
        threshold_of(context_, state_, k_, [&](int64_t v) { return u_low(v); });
    report_.rejoin_tuples += live_entries_;
    for (int64_t v = state_.first(); v < state_.last(); ++v) {
        if (!state_.is_open(v) || state_.u_max(v) >= threshold) continue;
        state_.decide(v, Decision::discarded);
        state_.mark(v);
    }
    const int64_t decided = tell(false);
    open_ -= decided;
    report_.discarded += decided;
    report_.steps.push_back({.grow = false, .threshold = threshold, .decided = decided});
    return decided;
}

int64_t Bounding::grow() {
    if (enough_decided()) return 0;
    const int64_t threshold =
        threshold_of(context_, state_, k_, [&](int64_t v) { return state_.u_max(v); });
    report_.rejoin_tuples += live_entries_;
    for (int64_t v = state_.first(); v < state_.last(); ++v) {
        if (!state_.is_open(v) || u_low(v) <= threshold) continue;
        state_.decide(v, Decision::selected);
        state_.mark(v);
    }
    const int64_t decided = tell(true);
    open_ -= decided;
    k_ -= decided;
    report_.selected += decided;
    report_.steps.push_back({.grow = true, .threshold = threshold, .decided = decided});
    return decided;
}

/// Tells the neighbours of marked samples; returns the number of marked samples on all ranks.
int64_t Bounding::tell(bool grown) {
    const Ownership& owners = context_.owners;
    int64_t at = state_.first();
    int64_t decided = 0;
    const auto produce = [&](Outbox<Told>& outbox) {
        while (at < state_.last() && (state_.is_open(at) || !state_.marked(at))) ++at;
        if (at == state_.last()) return false;
        state_.unmark(at);
        ++decided;
        const GraphRow row = rows_.at(at);
        live_entries_ -= std::ssize(row.neighbours);
        for (size_t i = 0; i < row.degree(); ++i) {
            const int64_t neighbour = row.neighbours[i];
            Told told{.node = PackedId(neighbour), .other = PackedId(at)};
            if (!rule_.has_quota()) {
                // A lower bound that counted the sample does not change when it is selected; one
                // that did not count it does not change when it is discarded.
                const bool counted = counts(neighbour, at);
                if (!grown && !counted) continue;
                told.other = PackedId(row.similarities[i] | (counted ? kCounted : 0));
            }
            outbox.add(owners.owner_of(neighbour), told);
        }
        if (decided % kBoundingReportEvery == 0) {
            context_.report(grown ? "bounding, grow" : "bounding, shrink", at - state_.first(),
                            state_.size());
        }
        return ++at < state_.last();
    };
    deliver_all<Told>(
        context_, state_, produce,
        [&](std::span<const Told> told) {
            if (rule_.has_quota()) {
                receive_quota(told, grown);
            } else {
                receive(told, grown);
            }
        },
        [&](int64_t first, int64_t last) {
            if (rule_.has_quota()) end_quota_block(first, last, grown);
        });
    return sum_over_ranks(context_.world, decided);
}

void Bounding::receive(std::span<const Told> told, bool grown) {
    for (const Told& one : told) {
        const int64_t node = one.node.value();
        if (!state_.is_open(node)) continue;
        const int64_t change = context_.objective.beta * (one.other.value() & ~kCounted);
        if (grown) state_.edit_u_max(node) -= change;
        if (!grown) {
            edit_u_low(node) += change;
        } else if ((one.other.value() & kCounted) == 0) {
            edit_u_low(node) -= change;
        }
    }
}

void Bounding::receive_quota(std::span<const Told> told, bool grown) {
    for (const Told& one : told) {
        if (pending_.size() == most_pending(state_.block_length())) {
            record(grown, false);
            recorded_in_parts_ = true;
        }
        pending_.push_back(one);
    }
}

/// Records the pending decisions at the entries of the rows. `all`: those of this block in this
/// step, so that lower bounds can follow at once; otherwise marks the samples whose bounds must.
void Bounding::record(bool grown, bool all) {
    std::ranges::sort(pending_);
    const auto bits = static_cast<unsigned>(grown ? Decision::selected : Decision::discarded);
    for (auto one = pending_.begin(); one != pending_.end();) {
        const int64_t node = one->node.value();
        const auto end = std::find_if(
            one, pending_.end(), [&](const Told& other) { return other.node.value() != node; });
        if (!state_.is_open(node)) {
            one = end;
            continue;
        }
        const GraphRow row = told_rows_.at(node);
        auto found = row.neighbours.begin();
        for (; one != end; ++one) {
            const int64_t other = one->other.value();
            found = std::lower_bound(found, row.neighbours.end(), other);
            if (found == row.neighbours.end() || *found != other) {
                throw InputFileError(context_.graph.path() + ": row " + std::to_string(node) +
                                     ": has changed while it was read; start again");
            }
            const int64_t i = found - row.neighbours.begin();
            const int64_t entry = row.begin - first_entry_ + i;
            neighbours_.edit(entry >> 2) |= static_cast<uint8_t>(bits << (entry & 3) * 2);
            if (grown) {
                state_.edit_u_max(node) -=
                    context_.objective.beta * row.similarities[static_cast<size_t>(i)];
            }
        }
        if (all) {
            recount(row);
        } else {
            state_.mark(node);
        }
    }
    pending_.clear();
}

void Bounding::end_quota_block(int64_t first, int64_t last, bool grown) {
    record(grown, !recorded_in_parts_);
    if (!std::exchange(recorded_in_parts_, false)) return;
    for (int64_t v = first; v < last; ++v) {
        if (!state_.marked(v)) continue;
        state_.unmark(v);
        recount(told_rows_.at(v));
    }
}

void Bounding::recount(const GraphRow& row) {
    edit_u_low(row.node) = state_.u_max(row.node) - context_.objective.beta * counted_sum(row);
}

}  // namespace vocabpipe
