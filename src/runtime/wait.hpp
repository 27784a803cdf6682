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

/// CPU time of the calling thread: what a pass costs when ranks share cores.
[[nodiscard]] inline int64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// Polls hard for the first microseconds, then gives the core away, then sleeps: a rank that waits
/// must not keep one that works from a shared core. Expires after the deadline without progress.
class IdleWait {
public:
    explicit IdleWait(const WaitOptions& options) : options_(options) {}

    /// Something advanced: start over.
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

    /// " for 1.2 s; no progress within ...", of a wait that is over: the end of its error's text.
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
    static constexpr int64_t kSleepNs = 50'000;  // about a thousandth of a pass worth training with
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
