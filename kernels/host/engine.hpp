// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/host/instruction_set.hpp"

namespace vocabpipe::kernels::host {

/// Memory that only grows, so that a warm step allocates nothing.
class GrowingBuffer {
public:
    [[nodiscard]] std::byte* at_least(int64_t bytes);

private:
    struct Free {
        void operator()(std::byte* data) const;
    };
    std::unique_ptr<std::byte, Free> data_;
    int64_t bytes_ = 0;
};

/// State of the host kernels that one rank keeps between calls: scratch memory that grows to the
/// need of the largest call. Used only by its rank's thread (and by that thread's OpenMP team
/// inside an operator).
class Engine {
public:
    explicit Engine(int threads);
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    [[nodiscard]] int threads() const { return threads_; }
    /// Makes `threads()` the OpenMP team size of the calling thread: with several ranks in one
    /// process every rank's thread has its own size, and a test may hold two engines on one thread.
    void bind_thread() const;
    [[nodiscard]] InstructionSet instruction_set() const { return instruction_set_; }

    /// What one thread needs to multiply at the same time as the others.
    struct Lane {
        GrowingBuffer wide;    ///< operands that are widened
        GrowingBuffer packed;  ///< panels
    };
    [[nodiscard]] Lane& lane(int thread) { return lanes_[static_cast<size_t>(thread)]; }
    /// An fp32 product on its way to bf16.
    [[nodiscard]] GrowingBuffer& conversion() { return conversion_; }

private:
    int threads_;
    InstructionSet instruction_set_;
    std::vector<Lane> lanes_;
    GrowingBuffer conversion_;
};

}  // namespace vocabpipe::kernels::host
