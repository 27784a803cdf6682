// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace vocabpipe::kernels::host {

/// State of the host kernels that one rank keeps between calls: oneDNN engine, created primitives,
/// and scratch memory that grows to the need of the largest call. Used only by its rank's thread
/// (and by that thread's OpenMP team inside an operator).
class Engine {
public:
    explicit Engine(int threads);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    [[nodiscard]] int threads() const { return threads_; }
    /// Makes `threads()` the OpenMP team size of the calling thread: with several ranks in one
    /// process every rank's thread has its own size, and a test may hold two engines on one thread.
    void bind_thread() const;

    struct State;  ///< kernels/host/engine_state.hpp, which knows oneDNN
    [[nodiscard]] State& state() { return *state_; }

private:
    int threads_;
    std::unique_ptr<State> state_;
};

}  // namespace vocabpipe::kernels::host
