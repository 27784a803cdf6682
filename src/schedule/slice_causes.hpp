// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Why a slice of a recorded run began when it did.
struct SliceCause {
    /// The slice that ended last among those that the action needed: for its data, its memory, or
    /// as the previous one in its lane. kNone: none, it could begin with the step.
    uint32_t slice = RecordedRun::kNone;
    /// The slice of the same communication on the rank that was ready last, for which `slice` is
    /// the cause; the slice itself if no rank was later.
    uint32_t member = RecordedRun::kNone;
};

/// [slice] In simulated runs Slice::waited_for names any action that was waited for. In executed
/// runs it names only dependencies; waits for the previous action are found from the order of the
/// lane.
[[nodiscard]] std::vector<SliceCause> slice_causes(const RecordedRun& run);

/// A piece of the critical path: until the piece's end_ns everything later waited for this slice.
struct PathPiece {
    uint32_t slice = RecordedRun::kNone;
    int64_t begin_ns = 0;  ///< for a communication: when its last member was ready
    int64_t end_ns = 0;
};

/// From the pass that ended last back to the begin of the step, latest piece first. In time that no
/// piece covers, an action could have begun but had not (overhead), or the next action needed
/// nothing.
[[nodiscard]] std::vector<PathPiece> critical_path(const RecordedRun& run,
                                                   const std::vector<SliceCause>& causes);

}  // namespace vocabpipe
