// SPDX-License-Identifier: Apache-2.0
#include "src/plan/named_file.hpp"

#include "src/support/nearest_name.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr std::string_view kExtension = ".json";

/// A name with a folder or an extension is a path even if there is nothing.
bool looks_like_path(const std::string& name) {
    return name.find('/') != std::string::npos || name.ends_with(kExtension);
}

}  // namespace

NamedText named_text(std::string_view flag, const std::string& name,
                     std::span<const embedded::File> built_in) {
    std::string stem = std::filesystem::path(name).filename().string();
    if (stem.ends_with(kExtension)) stem.resize(stem.size() - kExtension.size());
    std::vector<std::string_view> known;
    for (const embedded::File& file : built_in) {
        known.push_back(file.name);
        if (file.name == name) return {.name = stem, .text = std::string(file.text)};
    }
    if (!std::filesystem::exists(name)) {
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

NamedFile::NamedFile(std::string_view flag, const std::string& name,
                     std::span<const embedded::File> built_in)
    : where_(name) {
    const std::string content = named_text(flag, name, built_in).text;
    try {
        json_ = nlohmann::json::parse(content);
    } catch (const nlohmann::json::parse_error& error) {
        const auto line = 1 + std::count(content.begin(),
                                         content.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                               error.byte, content.size())),
                                         '\n');
        throw InputFileError(where_ + ": line " + std::to_string(line) +
                             ": is not valid JSON; correct it or download the file again");
    } catch (const nlohmann::json::out_of_range&) {
        throw InputFileError(where_ +
                             ": contains a number that does not fit into 64 bits, such as 1e999; "
                             "correct it or download the file again");
    }
    if (!json_.is_object()) {
        throw InputFileError(where_ + ": is not a JSON object, which starts with {");
    }
}

void NamedFile::refuse(const std::string& key, const std::string& reason) const {
    throw InputFileError(where_ + ": " + key + ": " + reason);
}

const nlohmann::json& NamedFile::at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) refuse(key, "is missing; add it");
    return *found;
}

const nlohmann::json& NamedFile::object(const char* key) const {
    const nlohmann::json& found = at(key);
    if (!found.is_object()) refuse(key, "must be an object in { }");
    return found;
}

std::string NamedFile::text(const char* key) const {
    const nlohmann::json& found = at(key);
    if (!found.is_string()) refuse(key, "must be a string in quotes");
    return found.get<std::string>();
}

std::string names_of(std::span<const embedded::File> files) {
    std::string names;
    for (const embedded::File& file : files) {
        names += (names.empty() ? "" : ", ") + std::string(file.name);
    }
    return names;
}

}  // namespace vocabpipe
