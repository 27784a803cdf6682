// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// What let a slice of a recorded run begin.
struct SliceCause {
    /// Slice that ended last of all that the action needed: its data, its memory, or the action
    /// before it in its lane. kNone: nothing, it could begin with the step.
    uint32_t slice = RecordedRun::kNone;
    /// Slice of the same communication on the rank that was ready last, the one that `slice` let
    /// begin; the slice itself if nobody was later.
    uint32_t member = RecordedRun::kNone;
};

/// [slice]. Simulated runs say in Slice::waited_for whatever an action waited for; executed ones
/// name dependencies alone, and a pass that its own rank held up is found by its place in the lane.
[[nodiscard]] std::vector<SliceCause> slice_causes(const RecordedRun& run);

/// A piece of the critical path: until end_ns of the piece everything later waited for this slice.
struct PathPiece {
    uint32_t slice = RecordedRun::kNone;
    int64_t begin_ns = 0;  ///< of a communication: when its last member was ready
    int64_t end_ns = 0;
};

/// From the pass that ended last back to the begin of the step, pieces in falling order of time.
/// What no piece covers is time in which an action could have begun and had not (overhead), or
/// before an action that needed nothing.
[[nodiscard]] std::vector<PathPiece> critical_path(const RecordedRun& run,
                                                   const std::vector<SliceCause>& causes);

}  // namespace vocabpipe
