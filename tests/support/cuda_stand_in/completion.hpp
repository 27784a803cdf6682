// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stop_token>

namespace cuda_stand_in {

/// One point in a stream: reached once, seen by everybody who waits. The only order it makes is
/// from the thread that reaches it to those that see it (a mutex would order the other way, too).
class Completion {
public:
    using Clock = std::chrono::steady_clock;

    void reach();
    [[nodiscard]] bool reached() const {
        // Relaxed first: looking at a point that is not reached must order nothing.
        return reached_.load(std::memory_order_relaxed) != 0 &&
               reached_.load(std::memory_order_acquire) != 0;
    }
    /// Sleeps until the point is reached or stop is requested; returns whether it was reached.
    bool wait(const std::stop_token& stop = {});
    /// When it was reached; only for a point that is.
    [[nodiscard]] Clock::time_point time() const { return time_; }

private:
    friend class CompletionPointer;
    std::atomic<uint32_t> reached_{0};
    std::atomic<uint32_t> owners_{1};
    Clock::time_point time_{};
};

/// Shared ownership whose counting orders nobody (see Unseen in race_checker.hpp).
class CompletionPointer {
public:
    CompletionPointer() = default;
    [[nodiscard]] static CompletionPointer make();
    CompletionPointer(const CompletionPointer& other);
    CompletionPointer(CompletionPointer&& other) noexcept;
    CompletionPointer& operator=(CompletionPointer other) noexcept;
    ~CompletionPointer();

    Completion* operator->() const { return point_; }
    explicit operator bool() const { return point_ != nullptr; }

private:
    Completion* point_ = nullptr;
};

/// Sleeps while *word is expected, until woken or for at most 50 ms.
void sleep_on(const std::atomic<uint32_t>& word, uint32_t expected);
void wake_all(const std::atomic<uint32_t>& word);

}  // namespace cuda_stand_in
