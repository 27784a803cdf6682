// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Orders the actions of a step on a rank's device and takes their times. This class is for devices
/// on which an action has run when its call returns; CudaLanes are streams.
class Lanes {
public:
    virtual ~Lanes() = default;
    /// Sets the program with this id.
    virtual void load(const Program& /*program*/, ProgramId /*id*/) {}
    /// Begins a step of the program with this id. All actions of the last step have ended.
    virtual void begin_step(ProgramId /*id*/) {}
    /// `lane` waits for `before`, which was enqueued on another lane.
    virtual void wait(Lane /*lane*/, uint32_t /*before*/) {}
    /// Marks the present end of `lane` as the point at which the streamed rows of `action`, which
    /// is on `lane`, are complete up to this piece.
    virtual void mark_rows(Lane /*lane*/, uint32_t /*action*/, int /*piece*/) {}
    /// `lane` waits for the rows of `before` up to this piece, which have been marked.
    virtual void wait_rows(Lane /*lane*/, uint32_t /*before*/, int /*piece*/) {}
    /// Work enqueued on `lane` between begin() and end() belongs to `action`.
    virtual void begin(Lane /*lane*/, uint32_t /*action*/) {}
    virtual void end(Lane /*lane*/, uint32_t /*action*/) {}
    /// Ends a part of the pass that is being enqueued; actions of other lanes may be enqueued next.
    virtual void end_part() {}
    /// Continues the pass.
    virtual void begin_part() {}
    /// Whether all parts of passes except the last one have run, so that the stream has room for
    /// another. The host must not block in a driver that waits for room on a stream, because no
    /// deadline expires there. Throws DeviceError.
    [[nodiscard]] virtual bool has_room() { return true; }
    /// Whether an action was enqueued to its end and has run. Throws DeviceError.
    [[nodiscard]] virtual bool finished(uint32_t /*action*/) { return true; }
    /// Marks the moment at which `lane` has run all that is enqueued now; returns a number that
    /// read_times() replaces by its time.
    virtual int64_t moment(Lane /*lane*/) { return 0; }
    /// Replaces times of the host's calls, and moments, by times of the device's work, and drops
    /// waits that took no time. After the step.
    virtual void read_times(std::span<Span> /*spans*/, std::vector<PieceWait>& /*waits*/) {}
    /// Waits until nothing runs any more; after an error, after Transport::cancel().
    virtual void drain() noexcept {}
};

}  // namespace vocabpipe
