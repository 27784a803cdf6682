// SPDX-License-Identifier: Apache-2.0
#include "schedules/v_pattern_ends.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace vocabpipe::v_pattern {

namespace {

constexpr std::array<std::pair<Kind, Kind>, 2> kWeightOf{{{I1, W1}, {I0, W0}}};

/// The last slots of a rank: takes passes out of the row and puts them back in their final order.
class CoolDown {
public:
    CoolDown(Row& row, int rank, int ranks) : row_(row), rank_(rank), ranks_(ranks) {}

    /// Takes out the last `chunk_1` I1 and `chunk_0` I0, or all there are, and W from the end until
    /// as many of either chunk and `weights` in total are out.
    void lift(int chunk_1, int chunk_0, int weights) {
        const auto goes = [&](Kind kind) {
            if (kind == I1) return lifted_[I1] < chunk_1;
            if (kind == I0) return lifted_[I0] < chunk_0;
            return is_weight(kind) && (lifted_[W1] < chunk_1 || lifted_[W0] < chunk_0 ||
                                       lifted_[W1] + lifted_[W0] < weights);
        };
        Row rest;
        std::reverse(row_.begin(), row_.end());
        for (const Cell& cell : row_) {
            if (goes(cell.kind)) {
                ++lifted_[cell.kind];
            } else {
                if (is_weight(cell.kind)) first_free_ = std::max(first_free_, cell.at + 1);
                rest.push_back(cell);
            }
        }
        std::reverse(rest.begin(), rest.end());
        row_ = std::move(rest);
    }

    void put(int64_t last_f1) {
        const std::array<int, kKinds> left = count(row_);
        for (int64_t k = 0; k < lifted_[I0]; ++k) {
            row_.push_back({last_f1 - rank_ + 2 * (ranks_ - k), I0});
        }
        for (int64_t k = 0; k < lifted_[I1]; ++k) {
            row_.push_back({last_f1 + 1 + rank_ - 2 * k, I1});
        }
        std::stable_sort(row_.begin(), row_.end(),
                         [](const Cell& a, const Cell& b) { return a.at < b.at; });
        const Row without = std::exchange(row_, {});
        run_ = {};
        run_[W1] = left[W1];
        run_[W0] = left[W0];
        int64_t now = first_free_;
        for (const Cell& cell : without) {
            for (; now < cell.at; ++now) put_weight(now);
            now = std::max(now, cell.at + 1);
            row_.push_back(cell);
            if (!is_weight(cell.kind)) ++run_[cell.kind];
        }
        while (put_weight(now)) ++now;
    }

private:
    bool put_weight(int64_t at) {
        for (const auto& [gradient, weight] : kWeightOf) {
            if (lifted_[weight] == 0 || run_[weight] >= run_[gradient]) continue;
            --lifted_[weight];
            ++run_[weight];
            row_.push_back({at, weight});
            return true;
        }
        return false;
    }

    Row& row_;
    int rank_;
    int ranks_;
    int64_t first_free_ = 0;  // first slot that lifted W may take
    std::array<int, kKinds> lifted_{};
    std::array<int, kKinds> run_{};
};

class Filler {
public:
    Filler(Rows& rows, int limit) : rows_(rows), limit_(limit) {
        for (const Row& row : rows) columns_ = std::max(columns_, row.back().at + 1);
        grid_.assign(rows.size(), std::vector<int8_t>(static_cast<size_t>(columns_), kFree));
        slots_.resize(rows.size() * kKinds);
        for (size_t r = 0; r < rows.size(); ++r) {
            for (const Cell& cell : rows[r]) {
                grid_[r][static_cast<size_t>(cell.at)] = static_cast<int8_t>(cell.kind);
                slots_[index(cell.kind, static_cast<int>(r))].push_back(cell.at);
            }
        }
        next_.resize(slots_.size());
        alive_.resize(rows.size());
    }

    void run() {
        const auto ranks = static_cast<int>(rows_.size());
        for (int64_t now = 0; now < columns_; ++now) {
            for (int rank = 0; rank < ranks; ++rank) {
                int8_t& here = grid_[static_cast<size_t>(rank)][static_cast<size_t>(now)];
                if (here == kFree) here = pull(rank, now);
                if (here == kFree) continue;
                const auto kind = static_cast<Kind>(here);
                ++next_[index(kind, rank)];
                alive_[static_cast<size_t>(rank)] += change(here);
            }
        }
        for (size_t r = 0; r < rows_.size(); ++r) {
            rows_[r].clear();
            for (size_t slot = 0; slot < grid_[r].size(); ++slot) {
                if (grid_[r][slot] == kFree) continue;
                rows_[r].push_back({static_cast<int64_t>(slot), static_cast<Kind>(grid_[r][slot])});
            }
        }
    }

private:
    static constexpr int8_t kFree = -1;

    /// Change of the number of activations alive.
    static int change(int8_t cell) {
        if (cell == kFree) return 0;
        const auto kind = static_cast<Kind>(cell);
        return is_forward(kind) ? 1 : is_weight(kind) ? -1 : 0;
    }

    size_t index(Kind kind, int rank) const {
        return static_cast<size_t>(rank) * kKinds + static_cast<size_t>(kind);
    }

    /// Moves the first later pass that can start `now`: at most the next one of every kind can.
    int8_t pull(int rank, int64_t now) {
        const auto ranks = static_cast<int>(rows_.size());
        int8_t found = kFree;
        int64_t from = columns_;
        for (const Kind kind : kEveryKind) {
            const std::vector<int64_t>& mine = slots_[index(kind, rank)];
            const size_t k = next_[index(kind, rank)];
            if (k == mine.size() || mine[k] >= from) continue;
            const Input input = input_of(kind, rank, ranks);
            if (input.rank >= 0 && slots_[index(input.kind, input.rank)][k] >= now) continue;
            if (is_forward(kind) && !fits(rank, now, mine[k])) continue;
            found = static_cast<int8_t>(kind);
            from = mine[k];
        }
        if (found == kFree) return kFree;
        grid_[static_cast<size_t>(rank)][static_cast<size_t>(from)] = kFree;
        const size_t mine = index(static_cast<Kind>(found), rank);
        slots_[mine][next_[mine]] = now;
        return found;
    }

    /// Whether one more activation fits from `now` until `until`.
    bool fits(int rank, int64_t now, int64_t until) const {
        const std::vector<int8_t>& row = grid_[static_cast<size_t>(rank)];
        int alive = alive_[static_cast<size_t>(rank)] + 1;
        for (auto slot = static_cast<size_t>(now); slot < static_cast<size_t>(until); ++slot) {
            alive += change(row[slot]);
            if (alive > limit_) return false;
        }
        return true;
    }

    Rows& rows_;
    int limit_;
    int64_t columns_ = 0;
    std::vector<std::vector<int8_t>> grid_;    // [rank][slot]
    std::vector<std::vector<int64_t>> slots_;  // [rank, kind][microbatch]
    std::vector<size_t> next_;  // [rank, kind] first pass not before the present slot
    std::vector<int> alive_;    // [rank]
};

}  // namespace

void lay_out_warm_up(Rows& rows) {
    const auto ranks = static_cast<int>(rows.size());
    const int most = std::min(peak(rows), 2 * ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        Row& row = rows[static_cast<size_t>(rank)];
        const auto first_i0 =
            std::find_if(row.begin(), row.end(), [](const Cell& cell) { return cell.kind == I0; });
        auto left = count(std::span(row).first(static_cast<size_t>(first_i0 - row.begin())));
        const int limit_1 = std::min(rank + 1, most / 2);
        const int limit_0 = most - limit_1;
        std::array<int, kKinds> placed{};
        auto end = row.begin();
        const auto take = [&](Kind kind, int limit = std::numeric_limits<int>::max()) {
            if (left[kind] == 0 || placed[kind] >= limit) return false;
            --left[kind];
            ++placed[kind];
            *end++ = {0, kind};
            return true;
        };
        for (int k = 0; k < 2 * (ranks - 1 - rank); ++k) take(F0, limit_0);
        for (int k = 0; k < rank + 1; ++k) {
            take(F0, limit_0);
            take(F1, limit_1);
        }
        while (end != first_i0) {
            take(I1);
            take(W1);
            if (!take(F1)) take(F0);
        }
    }
}

void lay_out_cool_down(Rows& rows) {
    const auto ranks = static_cast<int>(rows.size());
    const int most = peak(rows);
    const int chunk_1 = most / 2;
    const auto last_f1 = std::find_if(rows[0].rbegin(), rows[0].rend(),
                                      [](const Cell& cell) { return cell.kind == F1; });
    const int64_t last_f1_at = last_f1->at;
    for (int rank = 0; rank < ranks; ++rank) {
        CoolDown cool_down(rows[static_cast<size_t>(rank)], rank, ranks);
        cool_down.lift(std::min(rank + 1, chunk_1), most - chunk_1, most);
        cool_down.put(last_f1_at);
    }
}

void fill_holes(Rows& rows, int limit) {
    Filler(rows, limit).run();
}

void order_weights(Rows& rows) {
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

}  // namespace vocabpipe::v_pattern
