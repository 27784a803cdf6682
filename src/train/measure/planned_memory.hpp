// SPDX-License-Identifier: Apache-2.0
// What a run will take of memory, from its plan alone, and whether that is there. `rank`: of the
// world.
#pragma once

#include "src/train/run/training_plan.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Weights, gradients and optimizer state.
[[nodiscard]] PersistentBytes persistent_bytes(const TrainingPlan& plan, int rank);
/// Of host memory, for the copy of --async-save; 0 without.
[[nodiscard]] int64_t snapshot_bytes(const TrainingPlan& plan, int rank);
/// Of the memory that the rank computes in.
[[nodiscard]] int64_t planned_bytes(const TrainingPlan& plan, int rank);
/// What kernels take in the rank's process besides (kHostKernelBytes, and of experts
/// kHostProductBytes), once per process.
[[nodiscard]] int64_t kernel_bytes(const TrainingPlan& plan, int rank);
/// What the rank's process, or the rank on its GPU, will have taken at its peak: what is planned,
/// what it had before, what kernels take. With TrainingPlan::one_process() of all ranks.
[[nodiscard]] int64_t predicted_bytes(const TrainingPlan& plan, int rank);
/// All ranks on the device of `rank` (on the host: of its host) together must fit into what is free
/// there now; OutOfMemoryError otherwise.
void check_memory(const TrainingPlan& plan, int rank);

/// "12 MiB", rounded.
[[nodiscard]] std::string mib_text(int64_t bytes);

}  // namespace vocabpipe
