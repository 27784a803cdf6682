// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <vector>

namespace vocabpipe {

/// Notes how files are, to say later what became of them: a run goes on with a data file that was
/// removed or replaced under its name, but its next start reads another one.
class WatchedFiles {
public:
    /// Files that are not there are not watched.
    explicit WatchedFiles(const std::vector<std::string>& paths);

    /// A line for each file that is no longer as it was, "PATH: was replaced ...". Each is told of
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
