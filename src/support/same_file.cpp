// SPDX-License-Identifier: Apache-2.0
#include "src/support/same_file.hpp"

#include <filesystem>
#include <system_error>

namespace vocabpipe {

namespace fs = std::filesystem;

bool same_file(const std::string& a, const std::string& b) {
    std::error_code none_there;
    const auto plain = [&](const std::string& path) {
        const fs::path name = fs::weakly_canonical(fs::absolute(path, none_there), none_there);
        return name.has_filename() ? name : name.parent_path();  // "folder/" is "folder"
    };
    return a == b || fs::equivalent(a, b, none_there) || plain(a) == plain(b);
}

}  // namespace vocabpipe
