// SPDX-License-Identifier: Apache-2.0
#include "schedules/v_search.hpp"

#include "vocabpipe/error.hpp"

#include "schedules/v_pattern.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace vocabpipe {

namespace {

using namespace v_pattern;

constexpr int64_t kInterval = 6;  // slots per microbatch: six passes of one slot

/// Slot of microbatch 0, [rank][kind]; microbatch j is kInterval j slots later.
using Pattern = std::vector<std::array<int64_t, kKinds>>;

int64_t wrap(int64_t slot) {
    return (slot % kInterval + kInterval) % kInterval;
}

/// How the kinds move from one rank to the next.
struct Steps {
    int64_t first = 1;   // of F0 and I1, in the first `changes_at` steps down
    int64_t second = 1;  // of F0 and I1, afterwards
    int changes_at = 0;
};

/// The pattern that grows from the places of rank 0's kinds; none if two kinds meet on a rank.
std::optional<Pattern> pattern_of(const std::array<int64_t, 4>& of_rank_0, const Steps& steps,
                                  int ranks) {
    Pattern places(static_cast<size_t>(ranks));
    std::array<int64_t, 4> at = of_rank_0;
    for (int rank = 0; rank < ranks; ++rank) {
        std::array<bool, kInterval> taken{};
        for (const int64_t place : at) {
            if (std::exchange(taken[static_cast<size_t>(place)], true)) return std::nullopt;
        }
        auto& mine = places[static_cast<size_t>(rank)];
        std::copy(at.begin(), at.end(), mine.begin());
        for (const auto& [gradient, weight] : {std::pair{I1, W1}, std::pair{I0, W0}}) {
            int64_t place = mine[gradient];
            while (taken[static_cast<size_t>(place)]) place = (place + 1) % kInterval;
            taken[static_cast<size_t>(place)] = true;
            mine[weight] = place;
        }
        const int64_t down = rank < steps.changes_at ? steps.first : steps.second;
        at = {wrap(at[F0] + down), wrap(at[F1] - 1), wrap(at[I1] + down), wrap(at[I0] - 1)};
    }
    // Microbatch 0 takes the next place of every kind along the dataflow.
    int64_t now = 0;
    const auto place = [&](int rank, Kind kind) {
        int64_t& slot = places[static_cast<size_t>(rank)][kind];
        slot = now + wrap(slot - now);
        now = slot + 1;
    };
    for (const Kind kind : {F0, F1, I1, I0}) {
        const bool downward = kind == F0 || kind == I1;
        for (int k = 0; k < ranks; ++k) place(downward ? k : ranks - 1 - k, kind);
    }
    for (auto& mine : places) {
        mine[W1] = mine[I1] + wrap(mine[W1] - mine[I1]);
        mine[W0] = mine[I0] + wrap(mine[W0] - mine[I0]);
    }
    return places;
}

/// Activations alive when the pattern repeats for ever.
int steady_peak(const Pattern& pattern) {
    const auto begun_by = [](int64_t now, int64_t slot) {  // floor of the quotient, plus 1
        const int64_t d = now - slot;
        return (d - wrap(d)) / kInterval + 1;
    };
    int64_t most = 0;
    for (const auto& slot : pattern) {
        for (const int64_t now : {slot[F0], slot[F1]}) {
            most = std::max(most, begun_by(now, slot[F0]) + begun_by(now, slot[F1]) -
                                      begun_by(now, slot[W0]) - begun_by(now, slot[W1]));
        }
    }
    return static_cast<int>(most);
}

Rows repeat(const Pattern& pattern, int microbatches) {
    Rows rows;
    for (const auto& slot : pattern) {
        Row row;
        for (const Kind kind : kEveryKind) {
            for (int j = 0; j < microbatches; ++j) row.push_back({slot[kind] + kInterval * j, kind});
        }
        std::sort(row.begin(), row.end(), [](const Cell& a, const Cell& b) { return a.at < b.at; });
        rows.push_back(std::move(row));
    }
    return rows;
}

/// A row apart into its kinds, and what is left of it.
std::array<int, kKinds> count(const Row& row) {
    std::array<int, kKinds> passes{};
    for (const Cell& cell : row) ++passes[cell.kind];
    return passes;
}

/// Step 4: what a rank runs before its first I0 is laid out anew: F0 alone while the first
/// microbatch goes down and up again, then F0 and F1 in turn, then I1, W1 and a forward in turn.
void lay_out_warm_up(Rows& rows, int microbatches) {
    const auto ranks = static_cast<int>(rows.size());
    const int most = std::min(peak(rows), 2 * ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        Row& row = rows[static_cast<size_t>(rank)];
        const auto first_i0 = std::find_if(row.begin(), row.end(),
                                           [](const Cell& cell) { return cell.kind == I0; });
        std::array<int, kKinds> left = count(Row(row.begin(), first_i0));
        const int limit_1 = std::min({rank + 1, most / 2, microbatches});
        const int limit_0 = std::min(most - limit_1, microbatches);
        Row warm_up;
        std::array<int, kKinds> placed{};
        const auto take = [&](Kind kind, int limit) {
            if (placed[kind] >= limit || left[kind] == 0) return false;
            warm_up.push_back({0, kind});
            ++placed[kind];
            --left[kind];
            return true;
        };
        for (int k = 0; k < 2 * (ranks - 1 - rank); ++k) take(F0, limit_0);
        for (int k = 0; k < rank + 1; ++k) {
            take(F0, limit_0);
            take(F1, limit_1);
        }
        while (std::any_of(left.begin(), left.end(), [](int passes) { return passes > 0; })) {
            take(I1, microbatches);
            take(W1, microbatches);
            if (!take(F1, microbatches)) take(F0, microbatches);
        }
        std::copy(warm_up.begin(), warm_up.end(), row.begin());
    }
}

/// Step 6: the last I1 and I0 come as early as the last F1 allows, two slots apart, and W fill
/// what is free.
void lay_out_cool_down(Rows& rows, int microbatches) {
    const auto ranks = static_cast<int>(rows.size());
    const int most = peak(rows);
    const int last_0 = std::min((most + 1) / 2, microbatches);
    const int last_1 = std::min(most - last_0, microbatches);
    int64_t last_f1 = 0;
    for (const Cell& cell : rows[0]) {
        if (cell.kind == F1) last_f1 = cell.at;
    }
    for (int rank = 0; rank < ranks; ++rank) {
        Row& row = rows[static_cast<size_t>(rank)];
        std::array<int, kKinds> lift{};
        lift[I1] = std::min(rank + 1, last_1);
        lift[I0] = last_0;
        std::array<int, kKinds> lifted{};
        Row rest;
        int64_t last_weight = -1;
        for (auto cell = row.rbegin(); cell != row.rend(); ++cell) {
            const bool lifts =
                is_weight(cell->kind)
                    ? lifted[W1] < lift[I1] || lifted[W0] < lift[I0] ||
                          lifted[W1] + lifted[W0] < most
                    : lifted[cell->kind] < lift[cell->kind];
            if (lifts) {
                ++lifted[cell->kind];
            } else {
                if (is_weight(cell->kind)) last_weight = std::max(last_weight, cell->at);
                rest.push_back(*cell);
            }
        }
        std::reverse(rest.begin(), rest.end());
        std::array<int, kKinds> remain = count(rest);
        for (int k = 0; k < lifted[I0]; ++k) {
            rest.push_back({last_f1 - rank + 2 * ranks - 2 * k, I0});
        }
        for (int k = 0; k < lifted[I1]; ++k) rest.push_back({last_f1 + 1 + rank - 2 * k, I1});
        std::stable_sort(rest.begin(), rest.end(),
                         [](const Cell& a, const Cell& b) { return a.at < b.at; });
        // W into the free slots.
        row.clear();
        std::array<int, kKinds> run{};
        std::array<int, 2> weights{remain[W1], remain[W0]};
        int64_t now = last_weight + 1;
        const auto take_weight = [&](int64_t at) {
            for (const auto& [gradient, weight] : {std::pair{I1, W1}, std::pair{I0, W0}}) {
                int& done = weights[weight == W1 ? 0 : 1];
                if (done == run[gradient] || lifted[weight] == 0) continue;
                --lifted[weight];
                ++done;
                row.push_back({at, weight});
                return true;
            }
            return false;
        };
        for (const Cell& cell : rest) {
            for (; now < cell.at; ++now) take_weight(now);
            now = std::max(now, cell.at + 1);
            row.push_back(cell);
            ++run[cell.kind];
        }
        while (take_weight(now)) ++now;
    }
}

/// Step 7: free slots, from the first on, take the next pass that can run and keeps the peak.
class Filler {
public:
    Filler(Rows& rows, int limit) : rows_(rows), limit_(limit) {
        for (const Row& row : rows) columns_ = std::max(columns_, row.back().at + 1);
        grid_.assign(rows.size(), std::vector<int8_t>(static_cast<size_t>(columns_), kFree));
        ends_.resize(rows.size() * kKinds);
        for (size_t r = 0; r < rows.size(); ++r) {
            for (const Cell& cell : rows[r]) {
                grid_[r][static_cast<size_t>(cell.at)] = static_cast<int8_t>(cell.kind);
                ends_[index(cell.kind, static_cast<int>(r))].push_back(cell.at + 1);
            }
        }
        next_.resize(ends_.size());
        alive_.resize(rows.size());
    }

    void run() {
        const auto ranks = static_cast<int>(rows_.size());
        for (int64_t now = 0; now < columns_; ++now) {
            for (int rank = 0; rank < ranks; ++rank) {
                auto& here = grid_[static_cast<size_t>(rank)][static_cast<size_t>(now)];
                if (here == kFree) here = pull(rank, now);
                if (here == kFree) continue;
                const auto kind = static_cast<Kind>(here);
                ++next_[index(kind, rank)];
                int& alive = alive_[static_cast<size_t>(rank)];
                if (is_forward(kind)) ++alive;
                if (is_weight(kind)) --alive;
            }
        }
        for (size_t r = 0; r < rows_.size(); ++r) {
            rows_[r].clear();
            for (size_t c = 0; c < grid_[r].size(); ++c) {
                if (grid_[r][c] == kFree) continue;
                rows_[r].push_back({static_cast<int64_t>(c), static_cast<Kind>(grid_[r][c])});
            }
        }
    }

private:
    static constexpr int8_t kFree = -1;

    size_t index(Kind kind, int rank) const {
        return static_cast<size_t>(kind) * rows_.size() + static_cast<size_t>(rank);
    }

    /// Moves the first later pass that can start `now`; at most the next one of every kind can.
    int8_t pull(int rank, int64_t now) {
        Kind best = F0;
        int64_t from = columns_;
        for (const Kind kind : kEveryKind) {
            const size_t mine = index(kind, rank);
            const size_t k = next_[mine];
            if (k == ends_[mine].size() || ends_[mine][k] - 1 >= from) continue;
            const Input input = input_of(kind, rank, static_cast<int>(rows_.size()));
            if (input.rank >= 0) {
                const auto& of_input = ends_[index(input.kind, input.rank)];
                if (k >= of_input.size() || of_input[k] > now) continue;
            }
            if (is_forward(kind) && !fits(rank, now, ends_[mine][k] - 1)) continue;
            best = kind;
            from = ends_[mine][k] - 1;
        }
        if (from == columns_) return kFree;
        grid_[static_cast<size_t>(rank)][static_cast<size_t>(from)] = kFree;
        const size_t mine = index(best, rank);
        ends_[mine][next_[mine]] = now + 1;
        return static_cast<int8_t>(best);
    }

    /// Whether one more activation fits from `now` until `until`.
    bool fits(int rank, int64_t now, int64_t until) const {
        int alive = alive_[static_cast<size_t>(rank)] + 1;
        if (alive > limit_) return false;
        for (int64_t c = now + 1; c < until; ++c) {
            const int8_t cell = grid_[static_cast<size_t>(rank)][static_cast<size_t>(c)];
            if (cell == kFree) continue;
            if (is_forward(static_cast<Kind>(cell)) && ++alive > limit_) return false;
            if (is_weight(static_cast<Kind>(cell))) --alive;
        }
        return true;
    }

    Rows& rows_;
    int limit_;
    int64_t columns_ = 0;
    std::vector<std::vector<int8_t>> grid_;   // [rank][slot]
    std::vector<std::vector<int64_t>> ends_;  // [kind, rank][microbatch]
    std::vector<size_t> next_;                // [kind, rank], first pass not before the present slot
    std::vector<int> alive_;                  // [rank]
};

/// Step 8: W in the order of their I, whichever chunk.
void relabel_weights(Rows& rows) {
    for (Row& row : rows) {
        std::vector<Kind> waiting;
        size_t done = 0;
        for (Cell& cell : row) {
            if (cell.kind == I1) waiting.push_back(W1);
            if (cell.kind == I0) waiting.push_back(W0);
            if (is_weight(cell.kind)) cell.kind = waiting[done++];
        }
    }
}

}  // namespace

struct Dbg { int cand=0, ok[8]{}; } dbg;

Schedule v_search(const GenerateOptions& options) {
    const int p = options.ranks;
    const int m = options.microbatches;
    const int cap = options.memory_limit == 0 ? 2 * p : std::min(options.memory_limit, 2 * p);
    const int M = std::max(m, 2 * p);
    const Costs unit = Costs::unit(p);
    const Costs costs = Costs::of(options);
    std::optional<Rows> best;
    std::tuple<int64_t,int64_t> best_score{};
    const auto consider = [&](const std::array<int64_t, 4>& of_rank_0, const Steps& steps) {
        const auto pattern = pattern_of(of_rank_0, steps, p);
        if (!pattern) return;
        ++dbg.cand;
        if (steady_peak(*pattern) > (m == M ? cap : 2 * p)) return;
        ++dbg.ok[0];
        Rows rows = repeat(*pattern, M);
        const int most = peak(rows);
        if (!start_early(rows, unit)) return;
        ++dbg.ok[1];
        lay_out_warm_up(rows, M);
        if (!start_early(rows, unit)) return;
        ++dbg.ok[2];
        if (peak(rows) > most) return;
        ++dbg.ok[3];
        if (m < M) {
            drop_microbatches(rows, m);
            if (!start_early(rows, unit)) return;
            if (peak(rows) > cap) return;
        }
        const int most2 = peak(rows);
        lay_out_cool_down(rows, m);
        if (!start_early(rows, unit)) return;
        ++dbg.ok[4];
        Filler(rows, most2).run();
        relabel_weights(rows);
        if (peak(rows) > most2) return;
        ++dbg.ok[5];
        if (!start_early(rows, costs)) return;
        int64_t makespan = 0, span = 0;
        for (int r = 0; r < p; ++r) {
            const Row& row = rows[(size_t)r];
            int64_t end = row.back().at + costs.duration[row.back().kind][(size_t)r];
            makespan = std::max(makespan, end);
            span = std::max(span, end - row.front().at);
        }
        std::tuple<int64_t,int64_t> score{makespan, span};
        if (getenv("SPAN")) score = {span, makespan};
        if (!best || score < best_score) { best = rows; best_score = score; }
    };
    for (int64_t f1 = 1; f1 < kInterval; ++f1) {
        for (int64_t i1 = 1; i1 < kInterval; ++i1) {
            for (int64_t i0 = 1; i0 < kInterval; ++i0) {
                if (f1 == i1 || f1 == i0 || i1 == i0) continue;
                for (int64_t first = 1; first < kInterval; ++first) {
                    consider({0, f1, i1, i0}, {first, first, 0});
                    for (int64_t second = 1; second < first; ++second) {
                        for (int steps = 1; steps + 1 < p; ++steps) {
                            consider({0, f1, i1, i0}, {first, second, steps});
                        }
                    }
                }
            }
        }
    }
    if (!best) throw UsageError("none");
    return schedule_of(*best, options, true);
}

}  // namespace vocabpipe
