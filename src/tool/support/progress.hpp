// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace vocabpipe::tool {

/// One line on stderr that is rewritten in place a few times per second and erased by the
/// destructor. If stderr is no terminal: nothing, or with `everywhere` a new line after two seconds
/// and then every ten, so that long work does not look like a hang.
class ProgressLine {
public:
    explicit ProgressLine(bool everywhere = false)
        : terminal_(::isatty(STDERR_FILENO) == 1), everywhere_(everywhere) {}
    ~ProgressLine() { clear(); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// For work that reports no progress.
    void announce(const char* text) {
        if (terminal_) {
            std::fprintf(stderr, "\r\033[K%s", text);
            std::fflush(stderr);
            visible_ = true;
        }
    }

    /// Shows at most a few lines per second.
    void show(const std::string& text) {
        const auto now = std::chrono::steady_clock::now();
        if (!terminal_) {
            if (!everywhere_ || now < next_line_) return;
            next_line_ = now + std::chrono::seconds(10);
            std::fprintf(stderr, "%s\n", text.c_str());
            return;
        }
        if (now - begun_ < std::chrono::seconds(1)) return;
        if (now - shown_ < std::chrono::milliseconds(200)) return;
        shown_ = now;
        announce(text.c_str());
    }

    void clear() {
        if (!visible_) return;
        std::fputs("\r\033[K", stderr);
        std::fflush(stderr);
        visible_ = false;
    }

private:
    bool terminal_;
    bool everywhere_;
    bool visible_ = false;
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now(), shown_{};
    std::chrono::steady_clock::time_point next_line_ = begun_ + std::chrono::seconds(2);
};

}  // namespace vocabpipe::tool
