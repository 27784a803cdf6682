// SPDX-License-Identifier: Apache-2.0
#include "src/plan/parallel.hpp"

#include "src/support/usable_cores.hpp"

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
    const auto wanted = static_cast<size_t>(threads > 0 ? threads : usable_cores());
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
