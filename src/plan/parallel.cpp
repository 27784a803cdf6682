// SPDX-License-Identifier: Apache-2.0
#include "src/plan/parallel.hpp"

#include "src/support/control_groups.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace vocabpipe {

void for_all(size_t count, int threads, const std::function<bool()>& stop,
             const std::function<void(size_t)>& work) {
    std::atomic<size_t> next{0};
    std::vector<std::exception_ptr> errors(count);
    const auto loop = [&] {
        for (size_t i = next++; i < count; i = next++) {
            if (stop && stop()) return;
            try {
                work(i);
            } catch (...) {
                errors[i] = std::current_exception();
            }
        }
    };
    const double cores = std::max(1U, std::thread::hardware_concurrency());
    const auto hardware =
        static_cast<size_t>(std::max(1.0, std::min(cores, control_groups().cpus.value_or(cores))));
    const size_t wanted = threads > 0 ? static_cast<size_t>(threads) : hardware;
    {
        std::vector<std::jthread> pool;
        for (size_t t = 1; t < std::min(wanted, count); ++t) pool.emplace_back(loop);
        loop();
    }
    for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
    }
}

}  // namespace vocabpipe
