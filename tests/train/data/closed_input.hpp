// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace vocabpipe::testing {

/// While it lives, nothing is open as standard input, as a launcher may have it: the next file that
/// is opened has the number 0.
class ClosedInput {
public:
    ClosedInput() : kept_(::dup(STDIN_FILENO)) { ::close(STDIN_FILENO); }
    ~ClosedInput() {
        if (kept_ < 0) return;
        ::dup2(kept_, STDIN_FILENO);
        ::close(kept_);
    }
    ClosedInput(const ClosedInput&) = delete;
    ClosedInput& operator=(const ClosedInput&) = delete;

    /// Whether a file has the number.
    [[nodiscard]] static bool is_taken() { return ::fcntl(STDIN_FILENO, F_GETFD) >= 0; }

private:
    int kept_;
};

}  // namespace vocabpipe::testing
