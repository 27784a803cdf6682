// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/train/data/temp_folder.hpp"

namespace vocabpipe::testing {

struct Outcome {
    int exit_code = -1;  // 128 + signal if one ended it
    std::string output, error;
};

/// Text that was broken to fit a terminal, as one line.
inline std::string unwrapped(const std::string& text) {
    std::string line;
    for (const char c : text) {
        const bool space = c == ' ' || c == '\n';
        if (space && line.ends_with(' ')) continue;
        line += space ? ' ' : c;
    }
    return line;
}

/// Runs a shell command and collects what it prints.
inline Outcome run_shell(const std::string& command) {
    const TempFolder folder;
    const std::string redirected =
        "{ " + command + "; } </dev/null >'" + (folder / "out") + "' 2>'" + (folder / "err") + "'";
    const int status = std::system(redirected.c_str());
    Outcome outcome;
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.output = read_file(folder / "out");
    outcome.error = read_file(folder / "err");
    return outcome;
}

/// The same in a folder.
inline Outcome run_in(const TempFolder& folder, const std::string& command) {
    return run_shell("cd '" + (folder / "") + "' && " + command);
}

}  // namespace vocabpipe::testing
