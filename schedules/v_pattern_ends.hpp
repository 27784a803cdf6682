// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedules/v_pattern.hpp"

// A repeated pattern starts and ends badly. These steps of the pattern search (v_search.cpp, in the
// order in which they stand here) lay out both ends anew and close the holes. Each takes rows on
// the slots on which Clock put them, with unit costs.

namespace vocabpipe::v_pattern {

/// What a rank runs before its first I0: F0 alone while microbatch 0 goes down the ranks
/// and up again, then F0 and F1 in turn, then I1, W1 and a forward in turn. Sets the order, not the
/// slots.
void lay_out_warm_up(Rows& rows, int microbatches);

/// The last I1 and I0 follow rank 0's last F1 as closely as the dataflow allows, two slots
/// apart; W take the slots between them and the time after. Sets the order, not the slots.
void lay_out_cool_down(Rows& rows, int microbatches);

/// Every free slot, from the first on, takes the next pass of the rank whose input is there
/// and with which no more than `limit` activations are alive.
void fill_holes(Rows& rows, int limit);

/// W in the order of their I, whichever chunk: fair to both chunks' memory.
void order_weights(Rows& rows);

}  // namespace vocabpipe::v_pattern
