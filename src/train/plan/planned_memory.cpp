// SPDX-License-Identifier: Apache-2.0
#include "src/train/plan/planned_memory.hpp"

#include "src/step/ranks_beside.hpp"
#include "src/support/process_memory.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace vocabpipe {

std::string mib_text(int64_t bytes) {
    return std::to_string((bytes + (1 << 19)) >> 20) + " MiB";
}

PersistentBytes persistent_bytes(const TrainingPlan& plan, int rank) {
    return persistent_bytes(plan.options().model, plan.partition(), plan.schedule(), rank);
}

int64_t snapshot_bytes(const TrainingPlan& plan, int rank) {
    if (!plan.options().async_save) return 0;
    return static_cast<int64_t>(
        stored_bytes(plan.options().model, plan.partition(), plan.schedule(), rank));
}

int64_t kernel_bytes(const TrainingPlan& plan, int rank) {
    if (plan.placement(rank).memory || (plan.one_process() && rank != 0)) return 0;
    return kHostKernelBytes;
}

int64_t planned_bytes(const TrainingPlan& plan, int rank) {
    uint64_t arena = 0;  // of all programs, which share it
    for (const StepPlan& step : plan.steps()) {
        const Lowered& world = step.lowered;  // the same on all slices
        const auto k = static_cast<size_t>(world.mesh.pipeline_rank(rank));
        arena = std::max(arena, world.pipeline[k].arena_bytes);
    }
    return persistent_bytes(plan, rank).total() + static_cast<int64_t>(arena) +
           (plan.placement(rank).memory ? 0 : snapshot_bytes(plan, rank));
}

int64_t predicted_bytes(const TrainingPlan& plan, int rank) {
    const RankPlacement& place = plan.placement(rank);
    int64_t bytes =
        place.memory ? static_cast<int64_t>(place.memory->most_allocated) : place.resident_bytes;
    for (int other = 0; other < plan.ranks(); ++other) {
        if (other != rank && !plan.one_process()) continue;
        bytes += planned_bytes(plan, other) + kernel_bytes(plan, other);
    }
    return bytes;
}

namespace {

/// Checks the snapshots of ranks on GPUs, which take host memory.
void check_snapshots(const TrainingPlan& plan, int of_rank) {
    int64_t planned = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
        if (plan.placement(rank).memory &&
            plan.placement(rank).host == plan.placement(of_rank).host) {
            planned += snapshot_bytes(plan, rank);
        }
    }
    const int64_t available = available_memory();
    if (planned <= available) return;
    throw OutOfMemoryError("--async-save: the copies of the ranks on " +
                           plan.placement(of_rank).host + " need " + mib_text(planned) +
                           " of host memory, but only " + mib_text(available) +
                           " are available; remove the flag or use more hosts");
}

}  // namespace

int64_t planned_beside(const TrainingPlan& plan, int of_rank) {
    int64_t planned = 0;
    for (const int rank : ranks_beside(plan.placements(), of_rank)) {
        planned += planned_bytes(plan, rank);
    }
    return planned;
}

void check_memory(const TrainingPlan& plan, int of_rank, int64_t others) {
    if (plan.placement(of_rank).memory && plan.options().async_save) check_snapshots(plan, of_rank);
    const RankPlacement& place = plan.placement(of_rank);
    const int64_t planned = planned_beside(plan, of_rank) + others;
    const int largest_rank = std::ranges::max(ranks_beside(plan.placements(), of_rank), {},
                                              [&](int rank) { return planned_bytes(plan, rank); });
    const int64_t largest = planned_bytes(plan, largest_rank);
    const int64_t available =
        place.memory ? static_cast<int64_t>(place.memory->free) : available_memory();
    if (planned <= available) return;
    const std::string where = place.memory ? place.host + ", " + place.device : place.host;
    throw OutOfMemoryError(where + ": the plan needs " + mib_text(planned) + " (most on rank " +
                           std::to_string(largest_rank) + ": " + mib_text(largest) +
                           "), but only " + mib_text(available) +
                           " are available; reduce --micro-batch-size, --hidden-size or "
                           "--num-layers, use more hosts, or set --vocab-mode one_barrier");
}

}  // namespace vocabpipe
