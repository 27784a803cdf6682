// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/memory_plan.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>

namespace vocabpipe::lowering {

namespace {

/// Free ranges of the arena by offset; the arena grows at its end if nothing fits. There are few at
/// a time, so an array suffices.
class FreeList {
public:
    uint64_t take(uint64_t bytes) {
        size_t best = free_.size();
        for (size_t i = 0; i < free_.size(); ++i) {
            if (free_[i].bytes >= bytes &&
                (best == free_.size() || free_[i].bytes < free_[best].bytes)) {
                best = i;
            }
        }
        if (best < free_.size()) {
            Range& range = free_[best];
            const uint64_t offset = range.offset;
            range.offset += bytes;
            range.bytes -= bytes;
            if (range.bytes == 0) free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(best));
            return offset;
        }
        // Extend the last hole if it reaches the end.
        uint64_t offset = end_;
        if (!free_.empty() && free_.back().offset + free_.back().bytes == end_) {
            offset = free_.back().offset;
            free_.pop_back();
        }
        end_ = offset + bytes;
        return offset;
    }

    void give_back(uint64_t offset, uint64_t bytes) {
        auto next = std::lower_bound(free_.begin(), free_.end(), offset,
                                     [](const Range& r, uint64_t at) { return r.offset < at; });
        const bool joins_next = next != free_.end() && offset + bytes == next->offset;
        if (next != free_.begin()) {
            Range& before = *std::prev(next);
            if (before.offset + before.bytes == offset) {
                before.bytes += bytes;
                if (joins_next) {
                    before.bytes += next->bytes;
                    free_.erase(next);
                }
                return;
            }
        }
        if (joins_next) {
            next->offset = offset;
            next->bytes += bytes;
        } else {
            free_.insert(next, {offset, bytes});
        }
    }

    [[nodiscard]] uint64_t end() const { return end_; }

private:
    struct Range {
        uint64_t offset = 0;
        uint64_t bytes = 0;
    };
    std::vector<Range> free_;
    uint64_t end_ = 0;
};

/// The last occupant of every range of the arena.
class Occupants {
public:
    /// Puts `id` on [begin, end) and reports every previous occupant of a part of it.
    template <typename Report>
    void place(uint64_t begin, uint64_t end, uint32_t id, Report&& report) {
        // [first, last): the ranges that [begin, end) overlaps and replaces, except for their parts
        // outside of it.
        const auto first =
            std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                             [](const Range& r, uint64_t at) { return r.end <= at; });
        auto last = first;
        for (; last != ranges_.end() && last->begin < end; ++last) report(last->id);
        pieces_.clear();
        if (first != last && first->begin < begin) {
            pieces_.push_back({first->begin, begin, first->id});
        }
        pieces_.push_back({begin, end, id});
        if (first != last && std::prev(last)->end > end) {
            pieces_.push_back({end, std::prev(last)->end, std::prev(last)->id});
        }
        const auto kept = std::min(last - first, static_cast<std::ptrdiff_t>(pieces_.size()));
        std::copy_n(pieces_.begin(), kept, first);
        const auto from = ranges_.erase(first + kept, last);
        ranges_.insert(from, pieces_.begin() + kept, pieces_.end());
    }

private:
    struct Range {
        uint64_t begin = 0;
        uint64_t end = 0;
        uint32_t id = 0;
    };
    std::vector<Range> ranges_;  ///< ascending, disjoint
    std::vector<Range> pieces_;
};

}  // namespace

MemoryPlan plan_memory(std::vector<Lifetime>& lifetimes) {
    MemoryPlan plan;
    std::vector<std::pair<uint32_t, uint32_t>> by_birth;  // order of the first user, index
    by_birth.reserve(lifetimes.size());
    for (uint32_t id = 0; id < lifetimes.size(); ++id) {
        by_birth.emplace_back(lifetimes[id].born_order, id);
    }
    std::sort(by_birth.begin(), by_birth.end());
    const auto padded = [](uint64_t bytes) {
        return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    };

    using Death = std::pair<int64_t, uint32_t>;
    std::priority_queue<Death, std::vector<Death>, std::greater<>> deaths;
    std::vector<uint32_t> not_yet;  // dead, but a user comes later in the order (a tie)
    FreeList space;
    Occupants occupants;
    uint64_t live = 0;
    for (const auto& [order, id] : by_birth) {
        Lifetime& born = lifetimes[id];
        not_yet.clear();
        while (!deaths.empty() && deaths.top().first <= born.born_ns) {
            const uint32_t dead = deaths.top().second;
            deaths.pop();
            if (lifetimes[dead].last_order >= order) {
                not_yet.push_back(dead);
                continue;
            }
            space.give_back(lifetimes[dead].offset, padded(lifetimes[dead].bytes));
            live -= padded(lifetimes[dead].bytes);
        }
        for (const uint32_t dead : not_yet) deaths.emplace(lifetimes[dead].dies_ns, dead);
        const uint64_t bytes = padded(born.bytes);
        born.offset = space.take(bytes);
        live += bytes;
        if (live > plan.live_peak_bytes) {
            plan.live_peak_bytes = live;
            plan.peak_at = id;
        }
        deaths.emplace(born.dies_ns, id);
        const size_t begin = plan.reuses.size();
        occupants.place(born.offset, born.offset + bytes, id,
                        [&, of = id](uint32_t earlier) { plan.reuses.emplace_back(earlier, of); });
        // A buffer that a later one cut in two is reported twice.
        const auto from = plan.reuses.begin() + static_cast<std::ptrdiff_t>(begin);
        std::sort(from, plan.reuses.end());
        plan.reuses.erase(std::unique(from, plan.reuses.end()), plan.reuses.end());
    }
    plan.arena_bytes = space.end();
    return plan;
}

}  // namespace vocabpipe::lowering
