// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedules/rank_list.hpp"

#include <cstdint>
#include <vector>

// Shared by the one-barrier and two-barrier orders: where a rank runs its output unit, and which E
// and G run with it.

namespace vocabpipe {

/// Where a rank runs its unit T_{j-1} + S_j within the interval that it repeats.
struct UnitSlot {
    bool before_forward = true;  ///< B, unit, F ("BSF"); otherwise B, F, unit ("BFS")
    int64_t offset = 0;          ///< start relative to the last rank's unit, in cost units, <= 0
    int warm_up_units = 0;       ///< units between the warm-up forwards and the first B
};

/// The slot rule for every rank; f and b are the costs. The last rank is BSF at offset 0; a rank
/// above a BSF one is BSF, f earlier, if that is not before -b, else BFS at the same offset; a rank
/// above a BFS one is BSF, b - f later. In exact integers: equality counts as "fits", and the usual
/// b = 2 f is exactly on a threshold. The rule needs b >= f: it looks for a slot in a window of
/// length b, and only windows of at least f are sure to contain the end of a pass on every rank. A
/// cheaper backward (frozen weights) is treated as equal to the forward: the order stays valid, but
/// idles for the difference.
[[nodiscard]] std::vector<UnitSlot> unit_slots(int ranks, int64_t forward_cost,
                                               int64_t backward_cost);

/// Writes the units of one rank in order, with their E and G. "Unit j" is T_{j-1}, S_j and, once
/// rank 0 is in its steady state, one E; j is 1-based.
class UnitWriter {
public:
    /// `barriers` is 1 or 2; `warm_up_units_of_rank_0` puts E and G on the same units on all ranks.
    UnitWriter(RankList& list, int barriers, int warm_up_units_of_rank_0)
        : list_(list), barriers_(barriers), steady_unit_(warm_up_units_of_rank_0 + barriers) {}

    /// Writes the next unit, if any is left. With one barrier the last unit, only T, is not among
    /// them: only the optimizer waits for that T, so it may come at the very end.
    void unit();
    /// Writes the G of a slot, empty slots included: two units after the E, when rank 0's B and the
    /// broadcast of its result have ended.
    void gradient();

private:
    RankList& list_;
    int barriers_;
    int steady_unit_;
    int unit_ = 0;
};

}  // namespace vocabpipe
