// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

namespace vocabpipe::tool {

/// One line on stderr that is rewritten in place a few times per second; nothing if stderr is no
/// terminal. The line is erased with the object.
class ProgressLine {
public:
    ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}
    ~ProgressLine() { clear(); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// For work that reports nothing while it runs.
    void announce(const char* text) {
        if (terminal_) {
            std::fprintf(stderr, "\r\033[K%s", text);
            std::fflush(stderr);
        }
    }

    void show(int64_t bytes, int64_t total_bytes, int64_t tokens) {
        const auto now = std::chrono::steady_clock::now();
        if (!terminal_ || now - shown_ < std::chrono::milliseconds(200)) {
            return;
        }
        shown_ = now;
        std::fprintf(stderr, "\r\033[K%.1f of %.1f MB, %.2f M tokens",
                     static_cast<double>(bytes) * 1e-6, static_cast<double>(total_bytes) * 1e-6,
                     static_cast<double>(tokens) * 1e-6);
        std::fflush(stderr);
    }

    void clear() {
        if (terminal_) {
            std::fputs("\r\033[K", stderr);
            std::fflush(stderr);
        }
    }

private:
    bool terminal_;
    std::chrono::steady_clock::time_point shown_{};
};

}  // namespace vocabpipe::tool
