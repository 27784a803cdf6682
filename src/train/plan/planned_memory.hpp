// SPDX-License-Identifier: Apache-2.0
// Memory that a run will need, from its plan alone, and the check that it is available. `rank` is a
// rank of the world.
#pragma once

#include "src/train/plan/training_plan.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Packed products, stacks and the allocator's slack: once per process, after a step of
/// a transformer (docs/memory.md, "measured constants").
inline constexpr int64_t kHostKernelBytes = int64_t{16} << 20;

/// Weights, gradients and optimizer state.
[[nodiscard]] PersistentBytes persistent_bytes(const TrainingPlan& plan, int rank);
/// Host memory of the copy of --async-save; 0 without.
[[nodiscard]] int64_t snapshot_bytes(const TrainingPlan& plan, int rank);
/// Memory planned in the rank's device, or host: persistent, arena and, on a host, the snapshot.
[[nodiscard]] int64_t planned_bytes(const TrainingPlan& plan, int rank);
/// Further memory that kernels take in the rank's process (kHostKernelBytes). Once per process.
[[nodiscard]] int64_t kernel_bytes(const TrainingPlan& plan, int rank);
/// Predicted peak of the rank's process, or of the rank on its GPU: planned memory, memory taken
/// before, and that of kernels. With TrainingPlan::one_process(), of all ranks.
[[nodiscard]] int64_t predicted_bytes(const TrainingPlan& plan, int rank);
/// planned_bytes() of all ranks on the device of `rank` (on hosts: on the host), that one included.
[[nodiscard]] int64_t planned_beside(const TrainingPlan& plan, int rank);
/// OutOfMemoryError unless planned_beside() and `others`, bytes that another plan needs there, fit
/// together into the memory that is free there now.
void check_memory(const TrainingPlan& plan, int rank, int64_t others = 0);

/// "12 MiB", rounded.
[[nodiscard]] std::string mib_text(int64_t bytes);

}  // namespace vocabpipe
