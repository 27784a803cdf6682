// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lowered.hpp"
#include "vocabpipe/memory_over_time.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// How simulate() treats time and memory.
struct SimulateOptions {
    /// The optimizer step waits for the norms and the loss of every rank. False: it does not wait,
    /// and is undone in the rare case that it must not happen (post-validation); zero-bubble
    /// schedules need this for their gain (docs/simulation.md, "Step time").
    bool wait_for_reports = true;
    std::vector<PersistentBytes> persistent;  ///< [rank]; empty: only memory of the arena
    /// Cores that all ranks share: while more passes run than there are cores, each runs at
    /// cores / passes of its speed. 0: every rank has a core, or a device, of its own.
    int cores = 0;
    /// Copies of the programs that run at the same time and share the cores.
    int copies = 1;
};

/// A simulated step.
struct Simulation {
    Timeline timeline;                 ///< spans by rank, then by action
    TimelineSummary summary;           ///< of the timeline
    std::vector<uint64_t> peak_bytes;  ///< [rank] largest sum of buffers alive in simulated time
    std::vector<RankMemory> memory;    ///< [rank] the same with persistent bytes, over time
};

/// Runs the programs in simulated, integer time under the executor's rules: a compute action starts
/// when its lane is free and its edges are done; a communication starts when all participants have
/// reached it in their lanes, which go on as CostModel::communication_order says. A pass that
/// overlaps communication of its rank is slowed down (CostModel::overlap_slowdown_permille) while
/// it lasts, and while more passes run than there are cores (SimulateOptions::cores); it ends at
/// the next whole nanosecond. The second pass of a pair (Action::pair_member) may start when the
/// first one has; while both run, each has the speed that lets them compute for no more than all of
/// the time (CostModel::exchange_ns). The result does not depend on the order in which simultaneous
/// events are processed. Throws UsageError if the programs get stuck.
[[nodiscard]] Simulation simulate(const std::vector<Program>& programs, const CostModel& costs,
                                  const SimulateOptions& options = {});

/// The same for a world, in the time and memory of one pipeline: slices run copies of the same
/// programs, so one of them stands for all, and a communication between slices lasts as long as in
/// the slowest of its groups. Equal to the simulation of all ranks where all slices have links of
/// the same kinds; else at least as long in every communication. `costs` are asked for ranks of the
/// world, and SimulateOptions::persistent holds all of these; ranks of the result are those of the
/// pipeline.
[[nodiscard]] Simulation simulate(const Lowered& world, const CostModel& costs,
                                  const SimulateOptions& options = {});

}  // namespace vocabpipe
