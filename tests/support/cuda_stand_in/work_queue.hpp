// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>

namespace cuda_stand_in {

/// One of a device's connections to the host, which several streams may share: what was enqueued on
/// it is issued in that order, whatever stream it is of. So work waits for the issue of earlier
/// work of a stream that it has nothing to do with (a false dependency). Orders nobody for
/// ThreadSanitizer: a program must not rely on it.
class WorkQueue {
public:
    /// The place of work that is enqueued now.
    [[nodiscard]] uint32_t take_place() {
        return next_place_.fetch_add(1, std::memory_order_relaxed);
    }
    /// Returns when all work before this place has been issued, or stop was requested.
    void wait_for_turn(uint32_t place, const std::stop_token& stop);
    /// The work at this place goes to the device: what comes after it may follow.
    void issued(uint32_t place);

private:
    std::atomic<uint32_t> next_place_{0};
    std::atomic<uint32_t> turn_{0};
    std::atomic<bool> given_up_{false};
};

/// The queue of the stream with this number among those made on the device: they take turns, over
/// as many queues as CUDA_DEVICE_MAX_CONNECTIONS says (8 where it is not set).
[[nodiscard]] std::shared_ptr<WorkQueue> work_queue(int device, uint64_t number);

}  // namespace cuda_stand_in
