// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"
#include "vocabpipe/recorded_run.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// What time is spent on.
enum class Cause : uint8_t {
    compute,     ///< a pass
    local,       ///< combine_softmax or ordered_sum
    transfer,    ///< send and receive
    collective,  ///< broadcast, all_gather, all_to_all, gather
    memory,      ///< all else was ready, but the memory was still in use (write after read)
    posting,     ///< a receive that could have been posted earlier (LowerOptions::receive_ahead)
    overhead,    ///< all was ready, but it had not begun: executed runs only
    fixed,       ///< Timeline::fixed_ns
};
[[nodiscard]] std::string_view to_string(Cause cause);

inline constexpr uint32_t kNoAction = UINT32_MAX;

/// A stretch of the critical path with one cause. Times count from the begin of the timeline's
/// first span.
struct PathSegment {
    int64_t begin_ns = 0;          ///< begin of the stretch
    int64_t end_ns = 0;            ///< end of the stretch
    Cause cause = Cause::compute;  ///< why its time passed
    /// Rank of the action: for a communication the participant that came last; for `memory` and
    /// `posting` the one that had to wait. For `fixed` the action is kNoAction.
    int rank = 0;
    uint32_t action = kNoAction;  ///< index into the rank's program; kNoAction: none
    Op op = Op::F;                ///< where cause is compute
};

/// Part of the critical path that goes to one cause, compute by kind of pass.
struct PathShare {
    std::string name;              ///< "F", "B", ..., or to_string(cause)
    Cause cause = Cause::compute;  ///< why the time passed
    Op op = Op::F;                 ///< of passes: which kind
    int64_t ns = 0;                ///< time of all such stretches together
    double share = 0;              ///< of total_ns
};

/// The chain of causes that determines the length of the step: from its last end back to its first
/// begin, at each moment the one thing that the rest waited for.
struct CriticalPath {
    std::vector<PathSegment> segments;  ///< ascending, without gaps; the fixed time first
    std::vector<PathShare> shares;      ///< largest first
    int64_t total_ns = 0;               ///< makespan + Timeline::fixed_ns, the sum of all segments
};

/// One link of the chain of causes that an idle rank waits for.
struct ChainLink {
    int rank = 0;                  ///< whose action it is
    uint32_t action = kNoAction;   ///< index into the rank's program; kNoAction: none
    std::string name;              ///< as Program::name_of
    Cause cause = Cause::compute;  ///< why its time passed
    int64_t begin_ns = 0;          ///< begin of the stretch
    int64_t end_ns = 0;            ///< end of the stretch
    std::string why;               ///< how it follows from the link before it, one clause
};

/// What one rank's compute lane does at one moment and, if it is idle, why.
struct Explanation {
    /// What a rank does at a moment.
    enum class State : uint8_t { busy, idle, finished };
    State state = State::busy;    ///< at at_ns
    int rank = 0;                 ///< the rank asked about
    int64_t at_ns = 0;            ///< the moment asked about
    int64_t begin_ns = 0;         ///< begin of the pass, of its wait, or of the idle time
    int64_t end_ns = 0;           ///< end of the same; finished: the step's end
    uint32_t action = kNoAction;  ///< the pass that runs, or the next one
    std::string name;             ///< of that pass
    std::string waits_for;        ///< busy, but waiting inside the pass: "rows 128-255 of rank 5"
    std::vector<ChainLink>
        chain;  ///< idle: from `name` back to an action that began before the idle time
};

/// Throws UsageError for a rank that does not exist or a time outside the timeline. `at_ns` counts
/// from the begin of the timeline's first span. Simulated and executed timelines of all ranks.
[[nodiscard]] Explanation explain(const Timeline& timeline, const std::vector<Program>& programs,
                                  int rank, int64_t at_ns);

/// Throws UsageError if there are no spans.
[[nodiscard]] CriticalPath critical_path(const Timeline& timeline,
                                         const std::vector<Program>& programs);

/// Prints a time; empty: in ns, us or ms. For timelines whose costs have another unit.
using TimeText = std::function<std::string(int64_t ns)>;

/// Lines of text, each with its line end: what the rank does, then the chain; or the shares of the
/// critical path. `mesh`: of the programs, to name the place of each rank; by default they are one
/// pipeline.
[[nodiscard]] std::string to_text(const Explanation& explanation, const TimeText& time_text = {},
                                  const Mesh& mesh = {});
[[nodiscard]] std::string to_text(const CriticalPath& path, const TimeText& time_text = {});

/// A warning if passes took so much longer by the clock than in CPU time that ranks must have
/// shared cores, which makes measured speeds unreliable. Else "".
[[nodiscard]] std::string shared_cores_text(double pass_time_over_cpu);

/// Where the time of a recorded run went, as lines of text: what each rank computed and waited for
/// as shares of the makespan, the critical path, and whether ranks shared cores.
[[nodiscard]] std::string to_text(const RecordedRun& run, const TimeText& time_text);
/// What a rank of the run did at one moment and, if it was idle, what it waited for. Throws
/// UsageError as explain().
[[nodiscard]] std::string to_text(const RecordedRun& run, int rank, int64_t at_ns,
                                  const TimeText& time_text);

}  // namespace vocabpipe
