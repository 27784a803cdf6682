// SPDX-License-Identifier: Apache-2.0
#include "work_queue.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "completion.hpp"
#include "hooks.hpp"
#include "race_checker.hpp"

namespace cuda_stand_in {

void WorkQueue::wait_for_turn(uint32_t place, const std::stop_token& stop) {
    bool counted = false;
    for (;;) {
        const uint32_t turn = turn_.load(std::memory_order_relaxed);
        if (turn == place || given_up_.load(std::memory_order_relaxed)) {
            return;
        }
        if (stop.stop_requested()) {
            given_up_.store(true, std::memory_order_relaxed);
            return;
        }
        if (!std::exchange(counted, true)) {
            count(&Counters::false_dependencies);
        }
        sleep_on(turn_, turn);
    }
}

void WorkQueue::issued(uint32_t place) {
    turn_.store(place + 1, std::memory_order_relaxed);
    wake_all(turn_);
}

std::shared_ptr<WorkQueue> work_queue(int device, uint64_t number) {
    constexpr uint64_t usual = 8;
    constexpr uint64_t most = 32;
    static std::mutex mutex;
    static auto* const queues = new std::map<std::pair<int, uint64_t>, std::shared_ptr<WorkQueue>>;
    const char* const wish = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const uint64_t count =
        wish == nullptr ? usual : std::clamp<uint64_t>(std::strtoull(wish, nullptr, 10), 1, most);
    const UnseenLock lock(mutex);
    std::shared_ptr<WorkQueue>& queue = (*queues)[{device, number % count}];
    if (queue == nullptr) {
        queue = std::make_shared<WorkQueue>();
    }
    return queue;
}

}  // namespace cuda_stand_in
