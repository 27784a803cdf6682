// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace vocabpipe {

namespace kernels::host {
class Engine;
}

struct ContextOptions {
    int threads = 1;  ///< one OpenMP thread per rank: ranks x threads beyond the cores is a cliff
    std::function<void()>
        poll;  ///< progresses communication; called between operators, may be empty
};

/// What an operator needs of the rank it runs on. Owned by one rank and used by its thread only.
class Context {
public:
    explicit Context(ContextOptions options);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    /// Lets communication advance; long passes call it between operators (Open MPI has no progress
    /// of its own). May run a `combine` or `fold` of another microbatch, never a pass.
    void poll() {
        if (options_.poll) options_.poll();
    }
    [[nodiscard]] int threads() const { return options_.threads; }
    /// oneDNN engine and primitive cache (kernels/host/engine.hpp).
    [[nodiscard]] kernels::host::Engine& engine() { return *engine_; }

private:
    ContextOptions options_;
    std::unique_ptr<kernels::host::Engine> engine_;
};

}  // namespace vocabpipe
