// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "vocabpipe/context.hpp"
#include "vocabpipe/cuda/counters.hpp"

namespace vocabpipe::kernels::cuda {

/// Workspace of the lane that runs passes: NVIDIA's recommendation for cuBLASLt on Hopper.
inline constexpr int64_t kPassWorkspaceBytes = int64_t{32} << 20;
/// Workspace of the local lane.
inline constexpr int64_t kCombineWorkspaceBytes = int64_t{1} << 20;

/// State of the CUDA kernels that one rank keeps between calls: the cuBLASLt handle, chosen
/// algorithms, attention plans, and the stream of the current lane. Used only by its rank's thread.
class Engine {
public:
    explicit Engine(int device);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    /// Where the following operators are enqueued. The workspace, 256-byte aligned, holds nothing
    /// between operators: those of one lane run one after the other and may all use it.
    struct Queue {
        cudaStream_t stream = nullptr;
        std::span<std::byte> workspace;
        /// Number of streams that share the GPU (side_by_side.hpp), this one included.
        int beside = 1;
        /// The numbers of rows of products change from step to step.
        bool rows_vary = false;
    };
    void use(const Queue& queue) { queue_ = queue; }
    [[nodiscard]] const Queue& queue() const { return queue_; }
    [[nodiscard]] cudaStream_t stream() const { return queue_.stream; }
    [[nodiscard]] std::span<std::byte> workspace() const { return queue_.workspace; }
    [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
    /// For example 90 for 9.0.
    [[nodiscard]] int compute_capability() const { return compute_capability_; }

    /// Products are spread over all but `count` multiprocessors, but over at least half of them:
    /// communication kernels hold some while they wait for other ranks, and blocks of a product
    /// that find no free multiprocessor run after all others, which can double its time. Bits
    /// depend on it.
    void leave_multiprocessors(int count) { left_multiprocessors_ = count; }
    /// Multiprocessors that a product is planned for; 0: all.
    [[nodiscard]] int product_multiprocessors() const {
        if (left_multiprocessors_ == 0) return 0;
        return std::max(multiprocessors_ - left_multiprocessors_, (multiprocessors_ + 1) / 2);
    }

    /// Whether products of all experts are one launch where that applies (grouped_launch.hpp); by
    /// default in builds with CUTLASS.
    void group_experts(bool may) { groups_experts_ = may; }
    [[nodiscard]] std::optional<bool> groups_experts() const { return groups_experts_; }

    /// Whether gradients of attention may differ in their last bits from call to call.
    void let_attention_vary(bool may) { attention_may_vary_ = may; }
    [[nodiscard]] bool attention_may_vary() const { return attention_may_vary_; }

    /// Whether every launch and product waits for its end, so that an error names what failed
    /// (launch_errors.hpp): VOCABPIPE_SYNCHRONOUS was 1 when the engine was made.
    [[nodiscard]] bool synchronous() const { return synchronous_; }
    [[nodiscard]] CudaCounters& counters() { return counters_; }

    struct State;  ///< kernels/cuda/engine_state.hpp, which knows cuBLASLt and cuDNN
    [[nodiscard]] State& state() { return *state_; }

private:
    Queue queue_;
    int multiprocessors_ = 1;
    int compute_capability_ = 0;
    int left_multiprocessors_ = 0;
    std::optional<bool> groups_experts_;
    bool attention_may_vary_ = false;
    bool synchronous_ = false;
    CudaCounters counters_;
    std::unique_ptr<State> state_;
};

}  // namespace vocabpipe::kernels::cuda
