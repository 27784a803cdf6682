// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

// What the families built from a repeated pattern on the V placement share (schedules reference,
// 5.11 to 5.13). Rank r holds chunk 0, stage r, and chunk 1, stage 2p-1-r.

namespace vocabpipe::v_pattern {

/// The passes of one microbatch on one rank in dataflow order, then the weight gradients. Down the
/// ranks run F0 and I1, up the ranks F1 and I0. Where the backward is not split I1 and I0 stand for
/// B, and there is no W.
enum Kind : uint8_t { F0, F1, I1, I0, W1, W0 };
inline constexpr int kKinds = 6;
inline constexpr std::array<Kind, kKinds> kEveryKind{F0, F1, I1, I0, W1, W0};

[[nodiscard]] constexpr bool is_forward(Kind kind) {
    return kind <= F1;
}
[[nodiscard]] constexpr bool is_weight(Kind kind) {
    return kind >= W1;
}

/// Kind whose pass of the same microbatch must be over, and the rank that runs it; rank -1: none.
struct Input {
    Kind kind = F0;
    int rank = -1;
};
[[nodiscard]] Input input_of(Kind kind, int rank, int ranks);

/// A pass at a time: a slot of the pattern, or a begin in units of the costs. Microbatches are not
/// written down: the k-th pass of a kind on a rank is microbatch k.
struct Cell {
    int64_t at = 0;
    Kind kind = F0;
};
using Row = std::vector<Cell>;  ///< one rank, ascending in `at`
using Rows = std::vector<Row>;  ///< [rank]

/// Durations on every rank, and the latency between ranks.
struct Costs {
    std::array<std::vector<int64_t>, kKinds> duration;  ///< [kind][rank]
    int64_t hop = 0;

    /// Every pass lasts one slot, messages nothing.
    [[nodiscard]] static Costs unit(int ranks);
    [[nodiscard]] static Costs of(const GenerateOptions& options);
};

/// Sets every `at` to the earliest time that the order of the rows allows. False if the rows wait
/// for each other; `at` is then undefined.
[[nodiscard]] bool start_early(Rows& rows, const Costs& costs);

/// Largest number of activations alive on the rank.
[[nodiscard]] int peak(const Row& row);
[[nodiscard]] int peak(const Rows& rows);

/// Drops microbatches >= `kept`.
void drop_microbatches(Rows& rows, int kept);

/// The rows as a schedule of options.microbatches; `split`: I and W, otherwise B.
[[nodiscard]] Schedule schedule_of(const Rows& rows, const GenerateOptions& options, bool split);

}  // namespace vocabpipe::v_pattern
