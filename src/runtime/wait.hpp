// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <sched.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>

namespace vocabpipe {

[[nodiscard]] inline int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// CPU time of the calling thread: the cost of a pass even when ranks share cores.
[[nodiscard]] inline int64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// Spins for the first microseconds, then yields, then sleeps: on shared cores a waiting rank must
/// not slow down a working one. Expires after the deadline without progress.
class IdleWait {
public:
    explicit IdleWait(const WaitOptions& options) : options_(options) {}

    /// Call after progress: restarts the wait.
    void reset() { idle_since_ns_ = 0; }

    enum class Verdict : uint8_t { go_on, timed_out, interrupted };
    [[nodiscard]] Verdict pause() {
        const int64_t now = now_ns();
        if (idle_since_ns_ == 0) {
            idle_since_ns_ = now;
            return Verdict::go_on;
        }
        const int64_t idle = now - idle_since_ns_;
        if (idle < kPollNs) return Verdict::go_on;
        if (options_.interrupted && options_.interrupted()) return Verdict::interrupted;
        if (static_cast<double>(idle) * 1e-9 > options_.timeout_seconds) return Verdict::timed_out;
        if (idle < kYieldNs) {
            sched_yield();
        } else {
            const timespec nap{0, kSleepNs};
            nanosleep(&nap, nullptr);
        }
        return Verdict::go_on;
    }
    [[nodiscard]] double idle_seconds() const {
        return idle_since_ns_ == 0 ? 0 : static_cast<double>(now_ns() - idle_since_ns_) * 1e-9;
    }

    /// " for 1.2 s; no progress within ...": the end of the error text of a wait that is over.
    [[nodiscard]] std::string outcome(Verdict verdict) const {
        char waited[64];
        std::snprintf(waited, sizeof waited, " for %.1f s", idle_seconds());
        return std::string(waited) +
               (verdict == Verdict::interrupted
                    ? "; told to end: the launcher lost another rank or is ending itself"
                    : "; no progress within --distributed-timeout-seconds");
    }

private:
    static constexpr int64_t kPollNs = 5'000;
    static constexpr int64_t kYieldNs = 500'000;
    static constexpr int64_t kSleepNs = 50'000;  // about a thousandth of a typical pass
    const WaitOptions& options_;
    int64_t idle_since_ns_ = 0;
};

/// Polls `done` until it is true (go_on) or the wait is over (the other verdicts).
template <typename Done>
[[nodiscard]] IdleWait::Verdict poll_until(const WaitOptions& options, Done&& done) {
    IdleWait idle(options);
    while (!done()) {
        const IdleWait::Verdict verdict = idle.pause();
        if (verdict != IdleWait::Verdict::go_on) return verdict;
    }
    return IdleWait::Verdict::go_on;
}

}  // namespace vocabpipe
