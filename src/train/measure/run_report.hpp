// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/timeline.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// How one rank spent its steps. The first step, which compiles kernels, counts only as long as it
/// is the only one.
class RankUsage {
public:
    void add_step(const Timeline& timeline, int64_t duration_ns);
    /// Call when the size of steps changes: the median is over later steps.
    void forget_durations() { durations_.clear(); }
    /// CPU time of passes and local actions over the steps' duration.
    [[nodiscard]] double busy_share() const;
    /// 1 - busy time / time of the compute lane from its first to its last pass.
    [[nodiscard]] double bubble() const;
    [[nodiscard]] int64_t median_step_ns() const;

private:
    int64_t steps_ = 0;
    int64_t busy_ns_ = 0;
    int64_t wall_ns_ = 0;
    int64_t span_ns_ = 0;
    std::vector<int64_t> durations_;
};

struct RankReport {
    double busy_share = 0;
    double bubble = 0;
    int64_t median_step_ns = 0;
    int64_t live_peak_bytes = 0;   ///< planned
    int64_t arena_bytes = 0;       ///< packed
    int64_t persistent_bytes = 0;  ///< weights, gradients, optimizer
    /// Memory before the run allocated any: MPI and libraries, or the workspaces on a GPU.
    int64_t start_bytes = 0;
    int64_t snapshot_bytes = 0;  ///< for --async-save, if it is in the same memory
    int64_t kernel_bytes = 0;    ///< further memory of kernels; kHostKernelBytes
    /// Peak of the process, or of the rank's allocations on its GPU: without the driver's own
    /// memory, its rounding, and NCCL's buffers.
    int64_t measured_peak_bytes = 0;  ///< 0: unknown
    /// The first rank in its process; the measured figures are that process's.
    int memory_of = 0;

    /// arena + persistent + snapshot + start + kernels.
    [[nodiscard]] int64_t predicted_peak_bytes() const;
};

struct RunReport {
    std::string schedule, vocab_mode;
    bool one_process = false;          ///< ranks are threads that compute on the host
    std::vector<std::string> devices;  ///< by rank
    int64_t tokens_per_step = 0;
    double first_loss = 0;
    double last_loss = 0;
    int64_t simulated_step_ns = 0;  ///< from measured pass costs, one core per rank
    double simulated_bubble = 0;
    /// Simulated from measured durations and the fixed cost per step; next to it the median over
    /// the same steps.
    int64_t predicted_step_ns = 0;
    int64_t measured_step_ns = 0;
    int64_t fixed_step_ns = 0;
    /// Cores shared by ranks_sharing ranks with more threads; 0: every thread has a core, or a
    /// device.
    int shared_cores = 0;
    int ranks_sharing = 0;
    /// Elapsed over CPU time of the last step's passes. 1 on devices, which have no CPU time.
    double pass_time_over_cpu = 1;
    /// The last step's program: simulated with each pass's own duration, and as executed.
    int64_t replayed_ns = 0;
    int64_t executed_ns = 0;
    std::vector<RankReport> ranks;

    [[nodiscard]] double tokens_per_second() const;
    [[nodiscard]] double simulated_tokens_per_second() const;
    [[nodiscard]] double bubble() const;  ///< mean over ranks
    /// Predicted over measured step, minus 1; 0 without a measured step.
    [[nodiscard]] double step_error() const;
    /// Replayed over executed program, minus 1: what the simulator leaves out.
    [[nodiscard]] double replay_error() const;
    /// Predicted over measured peak, minus 1, of the process (or rank on a GPU) where its magnitude
    /// is largest.
    [[nodiscard]] double memory_error() const;
    /// Whether any process knows its peak, which takes /proc.
    [[nodiscard]] bool memory_measured() const;
};

/// Every rank's report, by rank. Collective.
[[nodiscard]] std::vector<RankReport> gather_rank_reports(Communicator& communicator,
                                                          const RankReport& mine);

/// Per rank: busy, idle, bubble; planned and measured memory.
void print_report(const RunReport& report);

/// One JSON object. Throws OutputFileError.
void write_report(const std::string& path, const RunReport& report);

}  // namespace vocabpipe
