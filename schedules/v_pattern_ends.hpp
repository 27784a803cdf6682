// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedules/v_pattern.hpp"

// A repeated pattern wastes time at its start and end. These steps of the pattern search
// (v_search.cpp, in this order) lay out both ends anew and close the holes. Each takes rows in the
// slots that Clock gave them with unit costs.

namespace vocabpipe::v_pattern {

/// Orders the passes before a rank's first I0: only F0 while microbatch 0 goes down the ranks and
/// up again, then F0 and F1 in turn, then I1, W1 and a forward in turn. Sets the order, not the
/// slots.
void lay_out_warm_up(Rows& rows);

/// Orders the end: the last I1 and I0 follow rank 0's last F1 as closely as the dataflow allows,
/// two slots apart; W take the slots between them and after. Sets the order, not the slots.
void lay_out_cool_down(Rows& rows);

/// Fills every free slot, from the first on, with the rank's next pass whose input is ready and
/// with which no more than `limit` activations are alive.
void fill_holes(Rows& rows, int limit);

/// Puts W in the order of their I of both chunks, which is fair to both chunks' memory.
void order_weights(Rows& rows);

}  // namespace vocabpipe::v_pattern
