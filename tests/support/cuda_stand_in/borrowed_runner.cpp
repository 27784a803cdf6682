// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "block.hpp"
#include "sanitizers.hpp"

namespace cuda_stand_in {

#if CUDA_STAND_IN_ASAN || CUDA_STAND_IN_TSAN

BorrowedRunner::BorrowedRunner() {
    static thread_local BlockRunner runner;
    runner_ = &runner;
}

BorrowedRunner::~BorrowedRunner() = default;

#else

namespace {

struct Runners {
    std::mutex mutex;
    std::vector<std::unique_ptr<BlockRunner> > idle;
};

/// Never destroyed: streams that a program leaves behind may run until the process ends.
Runners& runners() {
    static auto* const all = new Runners;
    return *all;
}

}  // namespace

BorrowedRunner::BorrowedRunner() {
    const std::lock_guard lock(runners().mutex);
    auto& idle = runners().idle;
    if (idle.empty()) {
        idle.push_back(std::make_unique<BlockRunner>());
    }
    runner_ = idle.back().release();
    idle.pop_back();
}

BorrowedRunner::~BorrowedRunner() {
    const std::lock_guard lock(runners().mutex);
    runners().idle.emplace_back(runner_);
}

#endif

}  // namespace cuda_stand_in
