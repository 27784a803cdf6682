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
    memory,      ///< everything else was there, but memory was still in use (write after read)
    posting,     ///< a receive that could have been posted earlier (LowerOptions::receive_ahead)
    overhead,    ///< all there, yet not begun: executed runs only
    fixed,       ///< Timeline::fixed_ns
};
[[nodiscard]] std::string_view to_string(Cause cause);

inline constexpr uint32_t kNoAction = UINT32_MAX;

/// A piece of time in which one thing held everything after it up. Times count from the begin of
/// the timeline's first span.
struct PathSegment {
    int64_t begin_ns = 0;          ///< begin of the stretch
    int64_t end_ns = 0;            ///< end of the stretch
    Cause cause = Cause::compute;  ///< why its time passed
    /// Whose action: of a communication the participant that came last. kNoAction for `fixed`.
    /// For `memory` and `posting` the action that had to wait.
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

/// What made the step as long as it is: from its last end back to its first begin, at each moment
/// the one thing that the rest waited for.
struct CriticalPath {
    std::vector<PathSegment> segments;  ///< ascending, without gaps; the fixed time first
    std::vector<PathShare> shares;      ///< largest first
    int64_t total_ns = 0;               ///< makespan + Timeline::fixed_ns, the sum of all segments
};

/// One passage of the chain that an idle rank waits for.
struct ChainLink {
    int rank = 0;                  ///< whose action it is
    uint32_t action = kNoAction;   ///< index into the rank's program; kNoAction: none
    std::string name;              ///< as Program::name_of
    Cause cause = Cause::compute;  ///< why its time passed
    int64_t begin_ns = 0;          ///< begin of the stretch
    int64_t end_ns = 0;            ///< end of the stretch
    std::string why;               ///< what it had to do with the link before it, one clause
};

/// What one rank's compute lane does at one moment, and if nothing, why.
struct Explanation {
    /// What a rank does at a moment.
    enum class State : uint8_t { busy, idle, finished };
    State state = State::busy;  ///< at at_ns
    int rank = 0;               ///< the rank asked about
    int64_t at_ns = 0;          ///< the moment asked about
    int64_t begin_ns = 0;       ///< of the pass or its wait, or since when the rank is idle
    int64_t end_ns = 0;         ///< of the same; or when the next begins; finished: the step's end
    uint32_t action = kNoAction;  ///< the pass that runs, or the next one
    std::string name;             ///< of that pass
    std::string waits_for;        ///< busy, but waiting inside the pass: "rows 128-255 of rank 5"
    std::vector<ChainLink>
        chain;  ///< idle: from `name` back to what began before the idle time did
};

/// Throws UsageError for a rank that does not exist or a time outside the timeline. `at_ns` counts
/// from the begin of the timeline's first span. Simulated and executed timelines of all ranks.
[[nodiscard]] Explanation explain(const Timeline& timeline, const std::vector<Program>& programs,
                                  int rank, int64_t at_ns);

/// Throws UsageError if there are no spans.
[[nodiscard]] CriticalPath critical_path(const Timeline& timeline,
                                         const std::vector<Program>& programs);

/// How to print a time; empty: in ns, us or ms. For timelines whose costs had another unit.
using TimeText = std::function<std::string(int64_t ns)>;

/// Lines of text, each ended: what the rank does, then the chain; the shares of the critical path.
/// `mesh`: that of the programs, whose places the text tells; by default they are one pipeline.
[[nodiscard]] std::string to_text(const Explanation& explanation, const TimeText& time_text = {},
                                  const Mesh& mesh = {});
[[nodiscard]] std::string to_text(const CriticalPath& path, const TimeText& time_text = {});

/// A sentence where passes took so much longer by the clock than in CPU time that cores were
/// shared: measured speeds say little then. Else "".
[[nodiscard]] std::string shared_cores_text(double pass_time_over_cpu);

/// Where the time of a run went that was read from a trace: what each rank computed and waited for,
/// as shares of the makespan, its critical path, and whether its cores were shared. Lines of text.
[[nodiscard]] std::string to_text(const RecordedRun& run, const TimeText& time_text);
/// What a rank of it did at one moment, and if nothing, what it waited for. Throws UsageError as
/// explain().
[[nodiscard]] std::string to_text(const RecordedRun& run, int rank, int64_t at_ns,
                                  const TimeText& time_text);

}  // namespace vocabpipe
