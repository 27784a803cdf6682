// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

namespace vocabpipe::bench {

/// Prints a line next to a table, unbuffered.
inline void print_note(const std::string& line) {
    std::printf("# %s\n", line.c_str());
    std::fflush(stdout);
}

}  // namespace vocabpipe::bench
