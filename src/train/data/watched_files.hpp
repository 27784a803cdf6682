// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

namespace vocabpipe {

/// Notes the state of files, to report later changes: a run goes on reading a data file that was
/// removed or replaced, but the next run would read another one.
class WatchedFiles {
public:
    /// Ignores files that do not exist.
    explicit WatchedFiles(const std::vector<std::string>& paths);

    /// One line for each file that has changed, "PATH: was replaced ..."; each file is reported
    /// once.
    [[nodiscard]] std::vector<std::string> changes();

private:
    struct File {
        std::string path;
        struct stat state;
    };
    std::vector<File> files_;
};

}  // namespace vocabpipe
