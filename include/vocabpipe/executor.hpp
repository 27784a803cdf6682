// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"
#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// How an Executor runs its rank.
struct ExecutorOptions {
    int threads = 1;  ///< OpenMP threads of this rank's kernels
    /// Fills the arena with NaN before a step and, on the host, memory when its buffer dies, so
    /// that a use before birth or after death shows (tests).
    bool poison_dead_buffers = false;
    /// Polled by the rank's thread during steps with an optimizer: true on any rank abandons the
    /// step on all (StepAbandoned), unless that rank has reported its part of the gradient norm;
    /// then the step is finished. Empty: never. Either all ranks set it or none.
    std::function<bool()> abandon = {};
};

/// The step ended on every rank before any rank had changed a weight or a moment: both are as the
/// previous step left them. Everything else in the modules is undefined, and the executor runs no
/// further step.
class StepAbandoned : public Error {
public:
    /// Exit code as after SIGTERM, if nobody catches it.
    explicit StepAbandoned(const std::string& message) : Error(ExitCode::terminated, message) {}
};

/// Runs the program of its rank: starts communication as soon as its inputs are ready, runs passes
/// in order, and polls in between. It knows no schedule names and no model families. It holds as
/// many programs as a run needs (training with several numbers of microbatches, evaluation), under
/// ids from 0 that the caller chooses; they share one arena of the size of the largest.
class Executor {
public:
    /// The device must outlive the executor, and hold the modules' parameters.
    Executor(Communicator& communicator, Device& device, const RankModules& modules,
             const StepSizes& sizes, ExecutorOptions options = {});
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    /// Takes this rank's program from those of a world, in place of the one with this id; allowed
    /// between steps. Grows the arena if needed and checks that all ranks hold the same programs
    /// (CommunicationError otherwise). Throws UsageError where the world has another number of
    /// ranks. Collective.
    void load(const Lowered& world, ProgramId id = 0);
    /// The same from the programs of all ranks.
    void load(const std::vector<Program>& programs, ProgramId id = 0);
    /// Runs that program once over the step's microbatches (as many as it was lowered for, each of
    /// the tokens that it was lowered for), whose spans are the host's memory; the modules get them
    /// in their device's. Throws UsageError for other microbatches, CommunicationError when a peer
    /// does not answer in time, DeviceError when a GPU fails, StepAbandoned when
    /// ExecutorOptions::abandon says so.
    void run_step(std::span<const Microbatch> microbatches, ProgramId id = 0);

    /// Spans of this rank from the last step of that program.
    [[nodiscard]] const Timeline& timeline(ProgramId id = 0) const;
    /// Spans of all ranks from the last step of that program, on every rank, in the time of
    /// rank 0's host: spans from other hosts are shifted by the difference of the clocks, known to
    /// within half a round trip (src/runtime/clock_alignment.hpp). Collective.
    [[nodiscard]] Timeline gather_timeline(ProgramId id = 0);
    /// This rank's program, as loaded.
    [[nodiscard]] const Program& program(ProgramId id = 0) const;
    /// Bytes allocated for the buffers of the programs loaded so far.
    [[nodiscard]] uint64_t arena_bytes() const;
    /// Context for work on this rank's device between steps.
    [[nodiscard]] Context& context();
    /// For messages: which step runs.
    void set_step(int64_t step);

private:
    friend struct ExecutorInternals;  ///< src/runtime/executor_internals.hpp
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace vocabpipe
