// SPDX-License-Identifier: Apache-2.0
#include "schedules/v_pattern.hpp"

#include "schedules/placement.hpp"

#include <algorithm>

namespace vocabpipe::v_pattern {

namespace {

constexpr std::array<Op, kKinds> kOps{Op::F, Op::F, Op::I, Op::I, Op::W, Op::W};

int stage_of(Kind kind, int rank, int ranks) {
    const bool chunk_1 = kind == F1 || kind == I1 || kind == W1;
    return chunk_1 ? 2 * ranks - 1 - rank : rank;
}

}  // namespace

Input input_of(Kind kind, int rank, int ranks) {
    switch (kind) {
        case F0:
            return {F0, rank - 1};
        case F1:
            return rank + 1 < ranks ? Input{F1, rank + 1} : Input{F0, rank};
        case I1:
            return rank > 0 ? Input{I1, rank - 1} : Input{F1, rank};
        case I0:
            return rank + 1 < ranks ? Input{I0, rank + 1} : Input{I1, rank};
        case W1:
            return {I1, rank};
        default:
            return {I0, rank};
    }
}

Costs Costs::unit(int ranks) {
    Costs costs;
    costs.duration.fill(std::vector<int64_t>(static_cast<size_t>(ranks), 1));
    return costs;
}

Costs Costs::of(const GenerateOptions& options) {
    Costs costs;
    costs.hop = options.costs.hop;
    for (const Kind kind : kEveryKind) {
        for (int rank = 0; rank < options.ranks; ++rank) {
            const auto stage = static_cast<uint16_t>(stage_of(kind, rank, options.ranks));
            costs.duration[kind].push_back(options.costs(rank, {.op = kOps[kind], .stage = stage}));
        }
    }
    return costs;
}

bool start_early(Rows& rows, const Costs& costs) {
    const auto ranks = static_cast<int>(rows.size());
    // Ends of the passes so far, [kind][rank][microbatch].
    std::vector<std::vector<int64_t>> ends(rows.size() * kKinds);
    const auto ends_of = [&](Kind kind, int rank) -> std::vector<int64_t>& {
        return ends[static_cast<size_t>(kind) * rows.size() + static_cast<size_t>(rank)];
    };
    for (const Kind kind : kEveryKind) {
        for (int rank = 0; rank < ranks; ++rank) {
            ends_of(kind, rank).reserve(rows[static_cast<size_t>(rank)].size() / 4 + 1);
        }
    }
    std::vector<size_t> next(rows.size(), 0);
    std::vector<int64_t> free_at(rows.size(), 0);
    const auto advance = [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        const size_t first = next[r];
        for (; next[r] < rows[r].size(); ++next[r]) {
            Cell& cell = rows[r][next[r]];
            std::vector<int64_t>& mine = ends_of(cell.kind, rank);
            const Input input = input_of(cell.kind, rank, ranks);
            int64_t at = free_at[r];
            if (input.rank >= 0) {
                const std::vector<int64_t>& of_input = ends_of(input.kind, input.rank);
                if (of_input.size() <= mine.size()) break;
                at = std::max(at, of_input[mine.size()] + (input.rank == rank ? 0 : costs.hop));
            }
            cell.at = at;
            free_at[r] = at + costs.duration[cell.kind][r];
            mine.push_back(free_at[r]);
        }
        return next[r] > first;
    };
    // Work flows down the ranks and up again.
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < ranks; ++rank) moved = advance(rank) || moved;
        for (int rank = ranks - 2; rank >= 0; --rank) moved = advance(rank) || moved;
    }
    for (size_t r = 0; r < rows.size(); ++r) {
        if (next[r] < rows[r].size()) return false;
    }
    return true;
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

void drop_microbatches(Rows& rows, int kept) {
    for (Row& row : rows) {
        std::array<int, kKinds> seen{};
        std::erase_if(row, [&](const Cell& cell) { return seen[cell.kind]++ >= kept; });
    }
}

Schedule schedule_of(const Rows& rows, const GenerateOptions& options, bool split) {
    const auto list_of = [&](int rank) {
        std::vector<Pass> list;
        std::array<uint32_t, kKinds> next{};
        for (const Cell& cell : rows[static_cast<size_t>(rank)]) {
            const auto stage = static_cast<uint16_t>(stage_of(cell.kind, rank, options.ranks));
            const Op op = split || is_forward(cell.kind) ? kOps[cell.kind] : Op::B;
            list.push_back({op, stage, next[cell.kind]++});
        }
        return list;
    };
    return transformer_schedule(options, Placement::v_shape, 2, list_of);
}

}  // namespace vocabpipe::v_pattern
