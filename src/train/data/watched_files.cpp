// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/watched_files.hpp"

namespace vocabpipe {

namespace {

/// What happened to a file; "" if nothing did.
const char* change_of(const std::string& path, const struct stat& then) {
    struct stat now {};
    if (::stat(path.c_str(), &now) != 0) {
        return "was removed; the run continues with the file that it opened";
    }
    if (now.st_dev != then.st_dev || now.st_ino != then.st_ino) {
        return "was replaced by another file; the run continues with the one that it opened";
    }
    if (now.st_size != then.st_size || now.st_mtim.tv_sec != then.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != then.st_mtim.tv_nsec) {
        return "was written to; the run continues with its new contents";
    }
    return "";
}

}  // namespace

WatchedFiles::WatchedFiles(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
        struct stat state {};
        if (::stat(path.c_str(), &state) == 0) files_.push_back({path, state});
    }
}

std::vector<std::string> WatchedFiles::changes() {
    std::vector<std::string> lines;
    std::erase_if(files_, [&](const File& file) {
        const std::string what = change_of(file.path, file.state);
        if (!what.empty()) lines.push_back(file.path + ": " + what);
        return !what.empty();
    });
    return lines;
}

}  // namespace vocabpipe
