// SPDX-License-Identifier: Apache-2.0
#include "src/plan/named_file.hpp"

#include "src/support/nearest_name.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

constexpr std::string_view kExtension = ".json";

/// A name with a folder or an extension is a path even if there is nothing.
bool looks_like_path(const std::string& name) {
    return name.find('/') != std::string::npos || name.ends_with(kExtension);
}

}  // namespace

NamedFile::NamedFile(std::string_view flag, const std::string& name,
                     std::span<const embedded::File> built_in)
    : stem_(std::filesystem::path(name).filename().string()) {
    if (stem_.ends_with(kExtension)) stem_.resize(stem_.size() - kExtension.size());
    std::string content;
    std::vector<std::string_view> known;
    for (const embedded::File& file : built_in) {
        known.push_back(file.name);
        if (file.name == name) content = file.text;
    }
    where_ = name;
    if (content.empty()) {
        if (!std::filesystem::exists(name)) {
            if (looks_like_path(name)) {
                throw InputFileError(name + ": no such file; give a path or one of " +
                                     names_of(built_in));
            }
            throw UsageError(std::string(flag) + " " + name + ": neither a file nor one of " +
                             names_of(built_in) + did_you_mean(name, known));
        }
        content = read_whole_file(name, "give a JSON file");
        if (content.empty())
            throw InputFileError(name + ": cannot be read: is empty; give a JSON file");
    }
    try {
        json_ = nlohmann::json::parse(content);
    } catch (const nlohmann::json::parse_error& error) {
        const auto line = 1 + std::count(content.begin(),
                                         content.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                               error.byte, content.size())),
                                         '\n');
        throw InputFileError(where_ + ": line " + std::to_string(line) +
                             ": not valid JSON; correct it or download the file again");
    } catch (const nlohmann::json::out_of_range&) {
        throw InputFileError(where_ +
                             ": holds a number that no 64-bit type does, such as 1e999; "
                             "correct it or download the file again");
    }
    if (!json_.is_object()) {
        throw InputFileError(where_ + ": not a JSON object; it must start with {");
    }
}

const nlohmann::json* NamedFile::find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void NamedFile::refuse(const std::string& key, const std::string& reason) const {
    throw InputFileError(where_ + ": " + key + ": " + reason);
}

bool NamedFile::has(const char* key) const {
    return find(key) != nullptr;
}

const nlohmann::json& NamedFile::object(const char* key) const {
    const nlohmann::json* found = find(key);
    if (found == nullptr) refuse(key, "missing; add it");
    if (!found->is_object()) refuse(key, "must be an object in { }");
    return *found;
}

std::string NamedFile::text(const char* key) const {
    const nlohmann::json* found = find(key);
    if (found == nullptr) refuse(key, "missing; add it");
    if (!found->is_string()) refuse(key, "must be a text in quotes");
    return found->get<std::string>();
}

bool NamedFile::flag(const char* key, bool otherwise) const {
    const nlohmann::json* found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_boolean()) refuse(key, "must be true or false");
    return found->get<bool>();
}

int64_t NamedFile::integer(const char* key, int64_t least, std::optional<int64_t> otherwise) const {
    const nlohmann::json* found = find(key);
    if (found == nullptr) {
        if (!otherwise) refuse(key, "missing; add it");
        return *otherwise;
    }
    constexpr int64_t kMost = int64_t{1} << 40;
    const bool number =
        found->is_number_integer() &&
        !(found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(kMost));
    const int64_t value = number ? found->get<int64_t>() : 0;
    if (!number || value < least || value > kMost) {
        refuse(key, found->dump().substr(0, 40) + " must be a whole number of at least " +
                        std::to_string(least) + " and at most 2^40");
    }
    return value;
}

void NamedFile::check_number(const char* key, double least, double most) const {
    const nlohmann::json* found = find(key);
    if (found == nullptr) return;
    const double value = found->is_number() ? found->get<double>() : -1;
    if (value >= least && value <= most) return;
    std::array<char, 64> range;
    std::snprintf(range.data(), range.size(), " must be a number from %g to %g", least, most);
    refuse(key, found->dump().substr(0, 40) + range.data());
}

std::string names_of(std::span<const embedded::File> files) {
    std::string names;
    for (const embedded::File& file : files) {
        names += (names.empty() ? "" : ", ") + std::string(file.name);
    }
    return names;
}

}  // namespace vocabpipe
