// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/text_layout.hpp"
#include "src/tool/support/progress.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::tool {

/// Progress of work in phases on stderr: what, how fast, and time left; on one rank.
class PhaseProgress {
public:
    explicit PhaseProgress(bool shown) : shown_(shown) {}

    /// `total` 0: unknown.
    void show(const char* phase, int64_t done, int64_t total) {
        if (!shown_) return;
        if (phase != phase_ || done < done_) {  // the next phase, or the same one again
            phase_ = phase;
            begun_ = Clock::now();
        }
        done_ = done;
        const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
        std::string text(phase);
        if (total > 0) {
            text +=
                format(": %.0f %%", 100 * static_cast<double>(done) / static_cast<double>(total));
        }
        if (done > 0 && seconds > 0.5) {  // earlier, the rate would mean nothing
            const double rate = static_cast<double>(done) / seconds;
            text += format(", %.3g per s", rate);
            if (total > done) {
                text += format(", %.0f s left", static_cast<double>(total - done) / rate);
            }
        }
        line_.show(text);
    }
    void clear() { line_.clear(); }

private:
    using Clock = std::chrono::steady_clock;
    bool shown_;
    ProgressLine line_{/*everywhere=*/true};
    std::string_view phase_;
    int64_t done_ = 0;
    Clock::time_point begun_ = Clock::now();
};

/// Seconds by phase, in the order in which phases first end.
class PhaseSeconds {
public:
    /// Counts the time since the last end for this phase.
    void end(const std::string& phase) {
        const auto now = std::chrono::steady_clock::now();
        if (!seconds_.contains(phase)) order_.push_back(phase);
        seconds_[phase] += std::chrono::duration<double>(now - last_).count();
        last_ = now;
    }
    [[nodiscard]] const std::vector<std::string>& phases() const { return order_; }
    [[nodiscard]] double of(const std::string& phase) const { return seconds_.at(phase); }

private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    std::vector<std::string> order_;
    std::map<std::string, double> seconds_;
};

}  // namespace vocabpipe::tool
