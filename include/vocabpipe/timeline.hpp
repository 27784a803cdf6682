// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"
#include "vocabpipe/program.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// One action that ran: simulated and executed runs fill the same type.
struct Span {
    uint32_t action = 0;               ///< index into the program of `rank`
    uint32_t waited_for = UINT32_MAX;  ///< action of the same rank that it waited for last
    uint16_t rank = 0;                 ///< rank that ran it
    Lane lane = Lane::compute;         ///< lane it ran in
    int64_t begin_ns = 0;              ///< on one clock for all ranks
    int64_t end_ns = 0;                ///< of the same clock
    /// Thread CPU time of compute. When simulated the duration, which the second pass of a pair has
    /// without the time beside the first, so that no moment of the rank counts twice.
    int64_t cpu_ns = 0;
    /// When its rank was ready for it; a communication begins when its last participant is ready.
    /// -1: not known, taken as begin_ns (executed runs).
    int64_t ready_ns = -1;
};

/// A wait inside a pass for a piece of its streamed input (Program::streamed).
struct PieceWait {
    uint32_t pass = 0;     ///< action of `rank`
    uint32_t source = 0;   ///< action of `rank` that received it
    uint16_t rank = 0;     ///< rank that waited
    uint16_t piece = 0;    ///< last piece that it waited for, from 1 to Action::pieces
    int64_t begin_ns = 0;  ///< on the clock of spans, within the span of the pass
    int64_t end_ns = 0;    ///< of the same clock
};

/// What ran in one step.
struct Timeline {
    std::vector<Span> spans;  ///< of all ranks, or of one
    /// Ordered by end on each rank.
    std::vector<PieceWait> piece_waits = {};
    int64_t fixed_ns = 0;  ///< time of the step outside all spans; see CostModel
    /// Ranks began the optimizer step before the others' reports had arrived, so that nothing
    /// synchronises them between steps.
    bool early_update = false;
};

/// Summary of one rank.
struct RankSummary {
    int64_t busy_ns = 0;  ///< time of its passes and local actions
    int64_t span_ns = 0;  ///< first start to last end of its compute lane
    double bubble = 0;    ///< 1 - busy / makespan
};

/// Summary of a timeline.
struct TimelineSummary {
    int64_t makespan_ns = 0;         ///< first start to last end over all ranks
    int64_t largest_span_ns = 0;     ///< within one rank; see `barrier`
    double bubble = 0;               ///< mean over ranks
    std::vector<RankSummary> ranks;  ///< [rank]
    /// Whether every rank waits for the others at the end of the step (norms and loss before the
    /// optimizer step). Then steps cannot overlap and a step costs the makespan, else the largest
    /// span (docs/simulation.md, "Step time").
    bool barrier = false;
    int64_t fixed_ns = 0;  ///< Timeline::fixed_ns
    int64_t step_ns = 0;   ///< the metric that applies, plus fixed_ns
};

[[nodiscard]] TimelineSummary summarize(const Timeline& timeline,
                                        const std::vector<Program>& programs);

/// Chrome trace JSON (Perfetto, chrome://tracing): pid = rank, tid = lane, messages as flow events,
/// counters for bytes alive. Written to a temporary name and renamed. `mesh`: of the programs, to
/// name the place of each rank; by default they are one pipeline. Throws OutputFileError.
void write_chrome_trace(const std::string& path, const Timeline& timeline,
                        const std::vector<Program>& programs, const std::string& title,
                        const Mesh& mesh = {});

}  // namespace vocabpipe
