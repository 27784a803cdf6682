// SPDX-License-Identifier: Apache-2.0
#include "src/plan/named_file.hpp"

#include "src/support/named_text.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <string>

namespace vocabpipe {

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

}  // namespace vocabpipe
