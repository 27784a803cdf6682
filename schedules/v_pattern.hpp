// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Shared by the families that repeat a pattern on the V placement (arXiv 2405.15362). Rank r holds
// chunk 0, stage r, and chunk 1, stage 2p-1-r.

namespace vocabpipe::v_pattern {

/// The passes of one microbatch on one rank in dataflow order, then the weight gradients. F0 and I1
/// go down the ranks, F1 and I0 go up. If the backward is not split, I1 and I0 stand for B.
enum Kind : uint8_t { F0, F1, I1, I0, W1, W0 };
inline constexpr int kKinds = 6;
inline constexpr std::array<Kind, kKinds> kEveryKind{F0, F1, I1, I0, W1, W0};
inline constexpr std::array<Kind, 4> kDataflow{F0, F1, I1, I0};

[[nodiscard]] constexpr bool is_forward(Kind kind) {
    return kind <= F1;
}
[[nodiscard]] constexpr bool is_weight(Kind kind) {
    return kind >= W1;
}
[[nodiscard]] constexpr bool goes_down(Kind kind) {
    return kind == F0 || kind == I1;
}

/// Kind and rank of the pass of the same microbatch that must end first; rank -1: none.
struct Input {
    Kind kind = F0;
    int rank = -1;
};
[[nodiscard]] constexpr Input input_of(Kind kind, int rank, int ranks) {
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

/// A pass and its time: a slot of the pattern, or a begin in units of the costs. Microbatches are
/// implicit: the k-th pass of a kind on a rank is microbatch k.
struct Cell {
    int64_t at = 0;
    Kind kind = F0;
};
using Row = std::vector<Cell>;  ///< one rank, ascending in `at`
using Rows = std::vector<Row>;  ///< [rank]

/// A new microbatch every kInterval slots: six passes of one slot on every rank.
inline constexpr int64_t kInterval = 6;
/// Slots of microbatch 0, [rank][kind].
using Pattern = std::vector<std::array<int64_t, kKinds>>;
[[nodiscard]] Rows repeat(const Pattern& pattern, std::span<const Kind> kinds, int microbatches);

/// Durations on every rank, and the latency between ranks.
struct Costs {
    std::array<std::vector<int64_t>, kKinds> duration;  ///< [kind][rank]
    int64_t hop = 0;

    /// Every pass lasts one slot, messages take no time.
    [[nodiscard]] static Costs unit(int ranks);
    [[nodiscard]] static Costs of(const ScheduleOptions& options);
    /// Whether all passes last the same and messages take no time, as the slots of a pattern
    /// assume.
    [[nodiscard]] bool alike() const;
};

/// Starts passes as early as inputs and the order of the rows allow. Reuse it: it allocates only
/// once.
class Clock {
public:
    /// Sets every `at`. False if the rows wait for each other; `at` is then undefined.
    [[nodiscard]] bool run(Rows& rows, const Costs& costs);

    /// Results of the last run: last end; largest time from first begin to last end within a rank.
    [[nodiscard]] int64_t makespan() const { return makespan_; }
    [[nodiscard]] int64_t largest_span() const { return largest_span_; }

private:
    bool advance(Row& row, int rank, const Costs& costs);

    int ranks_ = 0;
    size_t microbatches_ = 0;
    std::vector<int64_t> ends_;                    // [rank][kind][microbatch]
    std::vector<std::array<size_t, kKinds>> run_;  // [rank][kind] passes that have run
    std::vector<size_t> next_;                     // [rank]
    std::vector<int64_t> free_at_;                 // [rank]
    int64_t makespan_ = 0;
    int64_t largest_span_ = 0;
};

/// Largest number of activations alive on the rank, or on any rank.
[[nodiscard]] int peak(const Row& row);
[[nodiscard]] int peak(const Rows& rows);

[[nodiscard]] std::array<int, kKinds> count(std::span<const Cell> row);

/// Drops microbatches >= `kept`.
void drop_microbatches(Rows& rows, int kept);

/// The rows as a schedule of transformer passes; `split`: I and W, otherwise B.
[[nodiscard]] Schedule schedule_of(const Rows& rows, const ScheduleOptions& options, bool split);

}  // namespace vocabpipe::v_pattern
