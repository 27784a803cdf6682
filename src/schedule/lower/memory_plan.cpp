// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/memory_plan.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>

namespace vocabpipe::lowering {

namespace {

/// Free ranges of the arena by offset; grows at the end when nothing fits.
class FreeList {
public:
    uint64_t take(uint64_t bytes) {
        auto best = free_.end();
        for (auto it = free_.begin(); it != free_.end(); ++it) {
            if (it->second >= bytes && (best == free_.end() || it->second < best->second))
                best = it;
        }
        if (best != free_.end()) {
            const uint64_t offset = best->first;
            const uint64_t left = best->second - bytes;
            free_.erase(best);
            if (left > 0) free_.emplace(offset + bytes, left);
            return offset;
        }
        // Extend the last hole if it reaches the end.
        uint64_t offset = end_;
        if (!free_.empty()) {
            const auto last = std::prev(free_.end());
            if (last->first + last->second == end_) {
                offset = last->first;
                free_.erase(last);
            }
        }
        end_ = offset + bytes;
        return offset;
    }

    void give_back(uint64_t offset, uint64_t bytes) {
        auto next = free_.lower_bound(offset);
        if (next != free_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == offset) {
                offset = before->first;
                bytes += before->second;
                free_.erase(before);
            }
        }
        if (next != free_.end() && offset + bytes == next->first) {
            bytes += next->second;
            free_.erase(next);
        }
        free_.emplace(offset, bytes);
    }

    [[nodiscard]] uint64_t end() const { return end_; }

private:
    std::map<uint64_t, uint64_t> free_;  ///< offset -> bytes
    uint64_t end_ = 0;
};

/// Who wrote to which bytes of the arena last.
class Occupants {
public:
    /// Puts `id` on [begin, end) and reports every earlier occupant of part of it.
    template <typename Report>
    void place(uint64_t begin, uint64_t end, uint32_t id, Report&& report) {
        split(begin);
        split(end);
        const auto first = ranges_.lower_bound(begin);
        const auto last = ranges_.lower_bound(end);
        for (auto it = first; it != last; ++it) report(it->second.second);
        ranges_.erase(first, last);
        ranges_.emplace(begin, std::pair{end, id});
    }

private:
    void split(uint64_t at) {
        auto it = ranges_.upper_bound(at);
        if (it == ranges_.begin()) return;
        --it;
        if (it->first == at || it->second.first <= at) return;
        const auto [end, id] = it->second;
        it->second.first = at;
        ranges_.emplace(at, std::pair{end, id});
    }
    std::map<uint64_t, std::pair<uint64_t, uint32_t>> ranges_;  ///< begin -> (end, id)
};

}  // namespace

MemoryPlan plan_memory(std::vector<Lifetime>& lifetimes) {
    MemoryPlan plan;
    std::vector<uint32_t> by_birth(lifetimes.size());
    std::iota(by_birth.begin(), by_birth.end(), 0U);
    std::stable_sort(by_birth.begin(), by_birth.end(), [&](uint32_t a, uint32_t b) {
        return lifetimes[a].born_order < lifetimes[b].born_order;
    });
    const auto padded = [](uint64_t bytes) {
        return (bytes + kAlignment - 1) / kAlignment * kAlignment;
    };

    using Death = std::pair<int64_t, uint32_t>;
    std::priority_queue<Death, std::vector<Death>, std::greater<>> deaths;
    std::vector<uint32_t> not_yet;  // dead in time, but a user comes later in the order (a tie)
    FreeList space;
    Occupants occupants;
    uint64_t live = 0;
    for (const uint32_t id : by_birth) {
        Lifetime& born = lifetimes[id];
        not_yet.clear();
        while (!deaths.empty() && deaths.top().first <= born.born_ns) {
            const uint32_t dead = deaths.top().second;
            deaths.pop();
            if (lifetimes[dead].last_order >= born.born_order) {
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
                        [&](uint32_t earlier) { plan.reuses.emplace_back(earlier, id); });
        // A buffer cut in two by a later one is reported twice.
        const auto from = plan.reuses.begin() + static_cast<std::ptrdiff_t>(begin);
        std::sort(from, plan.reuses.end());
        plan.reuses.erase(std::unique(from, plan.reuses.end()), plan.reuses.end());
    }
    plan.arena_bytes = space.end();
    return plan;
}

}  // namespace vocabpipe::lowering
