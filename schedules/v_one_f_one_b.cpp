// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/v_pattern.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

using namespace v_pattern;

int64_t slots_of(Kind kind) {
    return is_forward(kind) ? 1 : 2;
}

/// Three backwards of two slots each fill an interval. So along the dataflow there is a pause of
/// three slots after every third one, where the next one would collide with the first one of the
/// next microbatch.
Pattern pattern_of(int ranks) {
    Pattern pattern(static_cast<size_t>(ranks));
    int64_t now = 0;
    int in_turn = (3 - (ranks + 2) % 3) % 3;
    for (const Kind kind : kDataflow) {
        if (kind == I1 && ranks % 3 == 0) now += 3;
        for (int k = 0; k < ranks; ++k) {
            pattern[static_cast<size_t>(goes_down(kind) ? k : ranks - 1 - k)][kind] = now;
            now += slots_of(kind);
            if (is_forward(kind) || ++in_turn < 3) continue;
            in_turn = 0;
            now += 3;
        }
    }
    return pattern;
}

int change(Kind kind) {
    return is_forward(kind) ? 1 : -1;
}

/// The passes of one rank that have their final slots.
class Placed {
public:
    /// Puts a pass into the first free slots from `ready` on, before `at`, with no more than
    /// `limit` activations alive from then on; else at `at`, after all others. Returns its slot.
    int64_t put(Kind kind, int64_t ready, int64_t at, int limit) {
        auto next = std::partition_point(row_.begin(), row_.end(), [&](const Cell& cell) {
            return cell.at + slots_of(cell.kind) <= ready;
        });
        int64_t slot = ready;
        while (slot < at) {
            const bool last = next == row_.end();
            const bool free = last || slot + slots_of(kind) <= next->at;
            if (free && (!is_forward(kind) || fits(next, limit))) break;
            slot = last ? at : next->at + slots_of(next->kind);
            if (!last) ++next;
        }
        row_.insert(next, {slot, kind});
        alive_ += change(kind);
        return slot;
    }

    Row take() && { return std::move(row_); }

private:
    bool fits(Row::const_iterator next, int limit) const {
        // From the end back: activations alive after every later pass.
        int alive = alive_ + 1;
        for (auto cell = row_.end(); alive <= limit && cell != next;)
            alive -= change((--cell)->kind);
        return alive <= limit;
    }

    Row row_;
    int alive_ = 0;
};

/// Moves every pass, in time order, to the earliest slots that its inputs, its rank and the
/// pattern's peak allow.
Rows pull_in(const Rows& rows) {
    const auto ranks = static_cast<int>(rows.size());
    int peak = 0;
    std::vector<std::pair<std::pair<int64_t, int>, Kind>> in_time;
    for (int rank = 0; rank < ranks; ++rank) {
        int alive = 0;
        for (const Cell& cell : rows[static_cast<size_t>(rank)]) {
            alive += change(cell.kind);
            peak = std::max(peak, alive);
            in_time.push_back({{cell.at, rank}, cell.kind});
        }
    }
    std::sort(in_time.begin(), in_time.end());
    std::vector<Placed> placed(rows.size());
    std::vector<std::vector<int64_t>> ends(rows.size() * kKinds);
    const auto ends_of = [&](Kind kind, int rank) -> std::vector<int64_t>& {
        return ends[static_cast<size_t>(rank) * kKinds + static_cast<size_t>(kind)];
    };
    for (const auto& [moment, kind] : in_time) {
        const auto& [at, rank] = moment;
        std::vector<int64_t>& mine = ends_of(kind, rank);
        int64_t ready = mine.empty() ? 0 : mine.back();
        const Input input = input_of(kind, rank, ranks);
        if (input.rank >= 0) {
            ready = std::max(ready, ends_of(input.kind, input.rank)[mine.size()]);
        }
        const int64_t slot = placed[static_cast<size_t>(rank)].put(kind, ready, at, peak);
        mine.push_back(slot + slots_of(kind));
    }
    Rows result;
    for (Placed& row : placed) result.push_back(std::move(row).take());
    return result;
}

}  // namespace

Schedule v_one_f_one_b(const ScheduleOptions& options) {
    const Rows rows = repeat(pattern_of(options.ranks), kDataflow, options.microbatches);
    return schedule_of(pull_in(rows), options, false);
}

}  // namespace vocabpipe
