// SPDX-License-Identifier: Apache-2.0
#include "schedules/v_pattern.hpp"

#include "schedules/placement.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe::v_pattern {

namespace {

constexpr std::array<Op, kKinds> kOps{Op::F, Op::F, Op::I, Op::I, Op::W, Op::W};

uint16_t stage_of(Kind kind, int rank, int ranks) {
    const bool chunk_1 = kind == F1 || kind == I1 || kind == W1;
    return static_cast<uint16_t>(chunk_1 ? 2 * ranks - 1 - rank : rank);
}

}  // namespace

Rows repeat(const Pattern& pattern, std::span<const Kind> kinds, int microbatches) {
    Rows rows;
    for (const auto& slots : pattern) {
        // Cells of one interval, in order, as if every kind had started; cells before its start are
        // left out below.
        std::vector<std::pair<int64_t, Kind>> block;  // slot within the interval
        int64_t first = slots[kinds.front()] / kInterval;
        int64_t last = first;
        for (const Kind kind : kinds) {
            block.emplace_back(slots[kind] % kInterval, kind);
            first = std::min(first, slots[kind] / kInterval);
            last = std::max(last, slots[kind] / kInterval);
        }
        std::sort(block.begin(), block.end());
        Row row;
        row.reserve(kinds.size() * static_cast<size_t>(microbatches));
        for (int64_t interval = first; interval < last + microbatches; ++interval) {
            for (const auto& [within, kind] : block) {
                const int64_t microbatch = interval - slots[kind] / kInterval;
                if (microbatch < 0 || microbatch >= microbatches) continue;
                row.push_back({interval * kInterval + within, kind});
            }
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

Costs Costs::unit(int ranks) {
    Costs costs;
    costs.duration.fill(std::vector<int64_t>(static_cast<size_t>(ranks), 1));
    return costs;
}

Costs Costs::of(const ScheduleOptions& options) {
    Costs costs;
    costs.hop = options.costs.hop;
    for (const Kind kind : kEveryKind) {
        for (int rank = 0; rank < options.ranks; ++rank) {
            const uint16_t stage = stage_of(kind, rank, options.ranks);
            costs.duration[kind].push_back(options.costs(rank, {.op = kOps[kind], .stage = stage}));
        }
    }
    return costs;
}

bool Costs::alike() const {
    const int64_t first = duration.front().front();
    return hop == 0 && std::all_of(duration.begin(), duration.end(), [&](const auto& of_ranks) {
               return std::all_of(of_ranks.begin(), of_ranks.end(),
                                  [&](int64_t one) { return one == first; });
           });
}

bool Clock::run(Rows& rows, const Costs& costs) {
    ranks_ = static_cast<int>(rows.size());
    microbatches_ = 0;
    for (const Row& row : rows) {
        for (const int passes : count(row)) {
            microbatches_ = std::max(microbatches_, static_cast<size_t>(passes));
        }
    }
    ends_.resize(rows.size() * kKinds * microbatches_);
    run_.assign(rows.size(), {});
    next_.assign(rows.size(), 0);
    free_at_.assign(rows.size(), 0);
    // Work goes down the ranks and up again.
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < ranks_; ++rank) {
            moved = advance(rows[static_cast<size_t>(rank)], rank, costs) || moved;
        }
        for (int rank = ranks_ - 2; rank >= 0; --rank) {
            moved = advance(rows[static_cast<size_t>(rank)], rank, costs) || moved;
        }
    }
    makespan_ = largest_span_ = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
        if (next_[r] < rows[r].size()) return false;
        if (rows[r].empty()) continue;
        makespan_ = std::max(makespan_, free_at_[r]);
        largest_span_ = std::max(largest_span_, free_at_[r] - rows[r].front().at);
    }
    return true;
}

bool Clock::advance(Row& row, int rank, const Costs& costs) {
    const auto r = static_cast<size_t>(rank);
    const size_t first = next_[r];
    size_t i = first;
    int64_t now = free_at_[r];
    for (; i < row.size(); ++i) {
        Cell& cell = row[i];
        const size_t microbatch = run_[r][cell.kind];
        const Input input = input_of(cell.kind, rank, ranks_);
        if (input.rank >= 0) {
            const auto other = static_cast<size_t>(input.rank);
            if (run_[other][input.kind] <= microbatch) break;
            const int64_t latency = other == r ? 0 : costs.hop;
            now = std::max(
                now, ends_[(other * kKinds + input.kind) * microbatches_ + microbatch] + latency);
        }
        cell.at = now;
        now += costs.duration[cell.kind][r];
        ends_[(r * kKinds + cell.kind) * microbatches_ + microbatch] = now;
        ++run_[r][cell.kind];
    }
    next_[r] = i;
    free_at_[r] = now;
    return i > first;
}

int peak(const Row& row) {
    int alive = 0;
    int most = 0;
    for (const Cell& cell : row) {
        if (is_forward(cell.kind)) most = std::max(most, ++alive);
        if (is_weight(cell.kind)) --alive;
    }
    return most;
}

int peak(const Rows& rows) {
    int most = 0;
    for (const Row& row : rows) most = std::max(most, peak(row));
    return most;
}

std::array<int, kKinds> count(std::span<const Cell> row) {
    std::array<int, kKinds> passes{};
    for (const Cell& cell : row) ++passes[cell.kind];
    return passes;
}

void drop_microbatches(Rows& rows, int kept) {
    for (Row& row : rows) {
        std::array<int, kKinds> seen{};
        std::erase_if(row, [&](const Cell& cell) { return seen[cell.kind]++ >= kept; });
    }
}

Schedule schedule_of(const Rows& rows, const ScheduleOptions& options, bool split) {
    const auto list_of = [&](int rank) {
        std::vector<Pass> list;
        std::array<uint32_t, kKinds> next{};
        for (const Cell& cell : rows[static_cast<size_t>(rank)]) {
            const Op op = split || is_forward(cell.kind) ? kOps[cell.kind] : Op::B;
            const uint16_t stage = stage_of(cell.kind, rank, options.ranks);
            list.push_back({.op = op, .stage = stage, .microbatch = next[cell.kind]++});
        }
        return list;
    };
    return transformer_schedule(options, Placement::v_shape, 2, list_of);
}

}  // namespace vocabpipe::v_pattern
