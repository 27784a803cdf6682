// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/matching_files.hpp"

#include <glob.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

void append_matching_files(const std::string& pattern, std::vector<std::string>& files) {
    std::error_code error;
    if (pattern.find_first_of("*?[") == std::string::npos ||
        std::filesystem::exists(pattern, error)) {
        files.push_back(pattern);
        return;
    }
    glob_t matches{};
    const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &matches);
    for (size_t i = 0; result == 0 && i < matches.gl_pathc; ++i) {
        files.emplace_back(matches.gl_pathv[i]);  // sorted by glob()
    }
    ::globfree(&matches);
    if (result == GLOB_NOSPACE) {
        throw std::bad_alloc();
    }
    if (result != 0) {
        throw InputFileError(pattern + ": no file matches this pattern");
    }
}

}  // namespace vocabpipe
