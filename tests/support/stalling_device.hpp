// SPDX-License-Identifier: Apache-2.0
// A host whose rank stops now and then and whose messages arrive late, at random: what may change
// when things happen, and nothing else.
#pragma once

#include "vocabpipe/device.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace vocabpipe::testing {

/// How a rank is held up. A chance is per occasion; durations are drawn from an exponential
/// distribution of the given mean, in microseconds.
struct Stalls {
    uint64_t seed = 0;
    double before_action = 0;  ///< chance that the rank sleeps before it begins an action
    double in_pass = 0;        ///< chance that it sleeps where a pass polls
    double stall_us = 0;       ///< mean of both
    double late_message = 0;   ///< chance that the end of a transfer is not seen for a while
    double late_us = 0;        ///< mean of that while
    double overlooked = 0;     ///< chance that a look at a transfer does not see its end: in which
                               ///< order several are seen to end is left to chance

    // Faults, so that tests can show that they would see one; counted from a rank's first transfer.
    int64_t lost_transfer = -1;     ///< never ends
    int64_t damaged_transfer = -1;  ///< and all later ones: one bit of what arrives is another
    int64_t damaged_piece = -1;     ///< the same of one piece from a tensor rank; counted from 0
};

/// What was done to the ranks of a run; one for all of them.
struct StallCounts {
    std::atomic<int64_t> stalls{0}, late_messages{0};
};

/// The host as one rank's device, held up as `stalls` says and by a random sequence of this rank's
/// own. `counts` may be null.
[[nodiscard]] std::unique_ptr<Device> make_stalling_device(int rank, const Stalls& stalls,
                                                           StallCounts* counts);

}  // namespace vocabpipe::testing
