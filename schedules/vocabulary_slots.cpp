// SPDX-License-Identifier: Apache-2.0
#include "schedules/vocabulary_slots.hpp"

#include <algorithm>

namespace vocabpipe {

std::vector<UnitSlot> unit_slots(int ranks, int64_t forward_cost, int64_t backward_cost) {
    const int64_t f = forward_cost;
    const int64_t b = std::max(backward_cost, forward_cost);
    std::vector<UnitSlot> slots(static_cast<size_t>(ranks));
    // The last rank is BSF at offset 0 without warm-up units; the others follow from the rank
    // below.
    for (int rank = ranks - 2; rank >= 0; --rank) {
        const UnitSlot& below = slots[static_cast<size_t>(rank) + 1];
        UnitSlot& slot = slots[static_cast<size_t>(rank)];
        // One rank up, B ends b later: "after B" moves by b, which is -f modulo the interval f+b.
        // It may not move before -b, where the last stage's F_j ends and its output is broadcast.
        if (!below.before_forward) {
            slot.offset =
                below.offset + (b - f);  // below was "after F" at this offset: always fits
        } else if (below.offset + b >= f) {
            slot.offset = below.offset - f;
        } else {
            slot = {.before_forward = false, .offset = below.offset, .warm_up_units = 0};
        }
        const bool same_units = slot.before_forward && !below.before_forward;
        slot.warm_up_units = below.warm_up_units + (same_units ? 0 : 1);
    }
    return slots;
}

void UnitWriter::unit() {
    const int m = list_.microbatches();
    if (unit_ > m) return;
    ++unit_;
    if (unit_ > m && barriers_ == 1) return;
    if (unit_ > 1) list_.emit(Op::T);
    if (unit_ > m) return;
    list_.emit(Op::S);
    if (unit_ >= steady_unit_) list_.emit(Op::E);
}

void UnitWriter::gradient() {
    if (unit_ >= steady_unit_ + 2) list_.emit(Op::G);
}

}  // namespace vocabpipe
