// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/measure/run_meter.hpp"
#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstddef>
#include <cstdint>

namespace vocabpipe {

/// What the trainer knows at the end of a run.
struct RunEnd {
    double first_loss = 0;
    double last_loss = 0;
    int64_t tokens_per_step = 0;  ///< of the last step
    StepPlan plan;                ///< of the last step
    ProgramId program = 0;        ///< that ran it
    int64_t start_memory = 0;     ///< bytes of the process before the run allocated any
    int64_t snapshot_bytes = 0;   ///< of host memory, for --async-save
};

/// Prints the report of a run, and writes what --report, --profile and --trace-dir ask for.
/// Collective; OutputFileError is agreed on.
void report_run(const TrainingPlan& plan, TrainedRank& rank, RunMeter& meter, const RunEnd& end);

}  // namespace vocabpipe
