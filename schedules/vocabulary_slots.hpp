// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedules/rank_list.hpp"

#include <cstdint>
#include <vector>

// What the one-barrier and two-barrier orders share: where a rank runs its output unit, and which
// input passes ride on it.

namespace vocabpipe {

/// Where a rank runs its unit T_{j-1} + S_j within the interval that it repeats.
struct UnitSlot {
    bool before_forward = true;  ///< B, unit, F ("BSF"); otherwise B, F, unit ("BFS")
    int64_t offset = 0;     ///< start of the unit against the last rank's unit, in cost units, <= 0
    int warm_up_units = 0;  ///< units between the warm-up forwards and the first B
};

/// The slot rule for every rank, f and b the costs. The last rank is BSF at offset 0; a rank above
/// a BSF one is BSF, f earlier, if that is not before -b, else BFS at the same offset; a rank above
/// a BFS one is BSF, b - f later. In exact integers: equality counts as "fits", and the usual b = 2
/// f sits exactly on a threshold. The rule needs b >= f: it looks for a slot in a window of length
/// b, and only windows that long are sure to hold the end of a pass on every rank. A cheaper
/// backward (frozen weights) is treated as equal to the forward: the order stays valid, as every
/// order of this rule is, and idles for the difference.
[[nodiscard]] std::vector<UnitSlot> unit_slots(int ranks, int64_t forward_cost,
                                               int64_t backward_cost);

/// The units of one rank in order, with the riding E and G. "Unit j" is T_{j-1}, S_j and, once rank
/// 0 is in its steady state, one E; j is 1-based.
class UnitWriter {
public:
    /// `barriers` is 1 or 2; `warm_up_units_of_rank_0` makes E and G ride on the same units
    /// everywhere.
    UnitWriter(RankList& list, int barriers, int warm_up_units_of_rank_0)
        : list_(list), barriers_(barriers), steady_unit_(warm_up_units_of_rank_0 + barriers) {}

    /// The next unit; nothing once they are used up. With one barrier the last unit, T alone, is
    /// not among them: nothing but the optimizer waits for that T, so it may stand at the very end.
    void unit();
    /// The G that rides on a slot, empty slots included: two units after the E, which is when rank
    /// 0's B and the broadcast of its result are over.
    void gradient();

private:
    RankList& list_;
    int barriers_;
    int steady_unit_;
    int unit_ = 0;
};

}  // namespace vocabpipe
