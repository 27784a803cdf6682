// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// In which order the actions of a step run on a rank's device, and when they did. This one is of a
/// device that has run an action when its call returns; CUDA's lanes are streams.
class Lanes {
public:
    virtual ~Lanes() = default;
    /// A program that steps will run, in place of the one with this id.
    virtual void load(const Program& /*program*/, ProgramId /*id*/) {}
    /// The program with this id runs. No action of the last step runs any more.
    virtual void begin_step(ProgramId /*id*/) {}
    /// `lane` goes on when `before`, ended on another lane, has run.
    virtual void wait(Lane /*lane*/, uint32_t /*before*/) {}
    /// The rows of `action`, which is on `lane`, up to this piece of what streams from it are there
    /// once what is enqueued now has run.
    virtual void mark_rows(Lane /*lane*/, uint32_t /*action*/, int /*piece*/) {}
    /// `lane` goes on when the rows of `before` up to this piece are there. They have been marked.
    virtual void wait_rows(Lane /*lane*/, uint32_t /*before*/, int /*piece*/) {}
    /// What is enqueued on `lane` between begin and end is `action`.
    virtual void begin(Lane /*lane*/, uint32_t /*action*/) {}
    virtual void end(Lane /*lane*/, uint32_t /*action*/) {}
    /// A part of the pass that is being enqueued ends here; actions of other lanes may begin.
    virtual void end_part() {}
    /// The pass goes on.
    virtual void begin_part() {}
    /// Whether all parts of passes but the last one have run. Then one more fits on the stream:
    /// the host must not block in a driver that waits for a stream to have room, because no
    /// deadline expires there. Throws DeviceError.
    [[nodiscard]] virtual bool has_room() { return true; }
    /// Whether an action has been ended and has run. Throws DeviceError.
    [[nodiscard]] virtual bool finished(uint32_t /*action*/) { return true; }
    /// When `lane` has run what is enqueued now; read_times() knows the number.
    virtual int64_t moment(Lane /*lane*/) { return 0; }
    /// Replaces times of the host's calls, and moments, by times of the device's work, and drops
    /// waits that took none. After the step.
    virtual void read_times(std::span<Span> /*spans*/, std::vector<PieceWait>& /*waits*/) {}
    /// Waits until nothing runs any more; on the way out with an error, after the transport's
    /// cancel.
    virtual void drain() noexcept {}
};

}  // namespace vocabpipe
