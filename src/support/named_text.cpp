// SPDX-License-Identifier: Apache-2.0
#include "src/support/named_text.hpp"

#include "src/support/joined.hpp"
#include "src/support/nearest_name.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr std::string_view kJsonExtension = ".json";

/// A name with a folder or an extension is a path, even if no such file exists.
bool looks_like_path(const std::string& name) {
    return name.find('/') != std::string::npos || name.ends_with(kJsonExtension);
}

}  // namespace

NamedText named_text(std::string_view flag, const std::string& name,
                     std::span<const embedded::File> built_in) {
    std::error_code ignored;
    const bool exists = std::filesystem::exists(name, ignored);
    std::string stem = std::filesystem::path(name).filename().string();
    if (stem.ends_with(kJsonExtension)) stem.resize(stem.size() - kJsonExtension.size());
    std::vector<std::string_view> known;
    for (const embedded::File& file : built_in) {
        known.push_back(file.name);
        if (file.name != name) continue;
        if (exists) {
            throw UsageError(std::string(flag) + " " + name +
                             ": is a built-in name, and here is a "
                             "file or folder of that name; write ./" +
                             name +
                             " for the latter, or "
                             "start elsewhere");
        }
        return {.name = stem, .text = std::string(file.text)};
    }
    if (!exists) {
        if (looks_like_path(name)) {
            throw InputFileError(name + ": does not exist; use a path or one of " +
                                 names_of(built_in));
        }
        throw UsageError(std::string(flag) + " " + name + ": is neither a file nor one of " +
                         names_of(built_in) + did_you_mean(name, known));
    }
    std::string text = read_whole_file(name, "use a JSON file");
    if (text.empty()) {
        throw InputFileError(name + ": is empty; use a JSON file");
    }
    return {.name = stem, .text = std::move(text)};
}

std::string names_of(std::span<const embedded::File> files) {
    return joined(files, ", ", &embedded::File::name);
}

}  // namespace vocabpipe
