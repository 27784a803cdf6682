// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "src/support/text_layout.hpp"
#include "src/tool/support/progress.hpp"

namespace vocabpipe::tool {

/// How far a preparation is: bytes of its files, speed, time left, tokens.
class TextProgress {
public:
    explicit TextProgress(int64_t total_bytes) : total_bytes_(total_bytes) {}

    void show(int64_t bytes, int64_t tokens) {
        // A preparation that goes on begins in the middle, in no time.
        if (!begun_) begun_ = {bytes, Clock::now()};
        const double seconds = std::chrono::duration<double>(Clock::now() - begun_->at).count();
        std::string text = format("%.1f of %.1f MB", static_cast<double>(bytes) * 1e-6,
                                  static_cast<double>(total_bytes_) * 1e-6);
        if (bytes > begun_->bytes && seconds > 0.5) {  // earlier, the rate would mean nothing
            const double rate = static_cast<double>(bytes - begun_->bytes) / seconds;
            text += format(", %.1f MB/s, %.0f s left", rate * 1e-6,
                           static_cast<double>(total_bytes_ - bytes) / rate);
        }
        line_.show(text + format(", %.2f M tokens", static_cast<double>(tokens) * 1e-6));
    }
    void announce(const char* text) { line_.announce(text); }
    void clear() { line_.clear(); }

private:
    using Clock = std::chrono::steady_clock;
    struct Begin {
        int64_t bytes;
        Clock::time_point at;
    };
    int64_t total_bytes_;
    std::optional<Begin> begun_;
    ProgressLine line_{/*everywhere=*/true};
};

}  // namespace vocabpipe::tool
