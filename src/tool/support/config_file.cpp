// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/config_file.hpp"

#include "src/support/joined.hpp"
#include "src/support/nearest_name.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

namespace vocabpipe::tool {

namespace {

constexpr uint64_t kMostConfigBytes = uint64_t{16} << 20;  // far above any list of flags

/// UsageError if it is no readable file.
void check_file(const std::string& path) {
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    if (std::filesystem::is_regular_file(status)) return;
    const char* const is = std::filesystem::is_directory(status) ? "is a folder"
                           : std::filesystem::exists(status)     ? "is not a regular file"
                                                                 : "does not exist";
    throw UsageError(std::string(ConfigFile::kFlag) + " " + path + ": " + is +
                     "; use a TOML file of flags");
}

/// "lr" for "--lr"; nothing for short names.
std::vector<std::string> keys_of(const Flag& flag) {
    std::vector<std::string> keys;
    for (const std::string& name : flag.spellings()) {
        if (name.starts_with("--")) keys.push_back(name.substr(2));
    }
    return keys;
}

}  // namespace

ConfigFile::ConfigFile(const std::vector<FlagGroup>& groups, Refusal refusal)
    : refusal_(std::move(refusal)) {
    for (const FlagGroup& group : groups) {
        flags_.insert(flags_.end(), group.flags.begin(), group.flags.end());
    }
}

FlagGroup ConfigFile::own_flags() {
    return {
        .flags = {
            {.names = kFlag,
             .value = FlagText{.set =
                                   [this](const auto& words) {
                                       check_file(words.back());
                                       path_ = words.back();
                                   },
                               .get = [this] { return path_; }},
             .help = "TOML file of flags, keyed by flag name; the command line overrides it",
             .unit = "FILE"},
            {.names = "--print-config",
             .value = &print_,
             .help = "Print the flags of the config file and the command line as TOML, and exit"}}};
}

const Flag* ConfigFile::flag_of(const std::string& key) const {
    for (const Flag& flag : flags_) {
        const std::vector<std::string> keys = keys_of(flag);
        if (std::ranges::find(keys, key) != keys.end()) return &flag;
    }
    return nullptr;
}

std::string ConfigFile::unknown(const std::string& key) const {
    for (const char* const other : {"config", "print-config", "help", "version"}) {
        if (key == other) return "--" + key + " is valid only on the command line";
    }
    const std::string refused = refusal_ ? refusal_("--" + key) : "";
    if (!refused.empty()) return "--" + key + ": " + refused;
    std::vector<std::string> names;
    for (const Flag& flag : flags_) {
        for (std::string& name : keys_of(flag)) names.push_back(std::move(name));
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    return "unknown flag --" + key + did_you_mean(key, known);
}

std::vector<TomlAssignment> ConfigFile::read(const GivenFlags& given) {
    const std::string text = [&] {
        try {
            return read_whole_file(path_, "use a TOML file of flags", kMostConfigBytes);
        } catch (const InputFileError& error) {
            throw UsageError(std::string(kFlag) + " " + error.what());
        }
    }();
    const auto refuse = [&](int line, const std::string& what) {
        throw UsageError(std::string(kFlag) + " " + path_ + ":" + std::to_string(line) + ": " +
                         what);
    };
    std::vector<TomlAssignment> all;
    std::map<const Flag*, int> lines;
    try {
        for (TomlAssignment& found : read_toml(text)) {
            const std::string& key = found.key;
            const Flag* const flag = flag_of(key);
            if (flag == nullptr) refuse(found.line, unknown(key));
            if (const auto [before, is_new] = lines.emplace(flag, found.line); !is_new) {
                refuse(found.line,
                       "--" + key + " is already set on line " + std::to_string(before->second));
            }
            if (flag->is_switch() && (!found.is_boolean || found.is_array)) {
                refuse(found.line, "--" + key + " is a switch; use true or false");
            }
            const size_t most = flag->is_list() ? SIZE_MAX : static_cast<size_t>(flag->words);
            if (found.is_array && (found.values.empty() || found.values.size() > most)) {
                refuse(found.line, "--" + key + " expects " +
                                       (most == 1 ? "one value" : "at least one value") + ", got " +
                                       std::to_string(found.values.size()));
            }
            if (!given.contains(flag->name())) {
                sources_["--" + key] = path_ + ":" + std::to_string(found.line);
            }
            all.push_back(std::move(found));
        }
    } catch (const TomlError& error) {
        refuse(error.line, error.what());
    }
    return all;
}

std::string ConfigFile::source_of(const std::string& message) const {
    for (const auto& [flag, source] : sources_) {
        for (size_t at = message.find(flag); at != std::string::npos;
             at = message.find(flag, at + 1)) {
            const size_t end = at + flag.size();
            const bool goes_on = end < message.size() &&
                                 (std::isalnum(static_cast<unsigned char>(message[end])) != 0 ||
                                  message[end] == '-');
            if (!goes_on) return " (" + source + ")";
        }
    }
    return "";
}

std::string ConfigFile::text(const GivenFlags& given) const {
    std::string text;
    for (const Flag& flag : flags_) {
        const auto found = given.find(flag.name());
        if (found == given.end()) continue;
        const std::vector<std::string>& words = found->second;
        text += keys_of(flag).front() + " = ";
        if (flag.is_switch()) {  // words that come later overrule earlier ones
            text += words.back() == "false" ? "false" : "true";
        } else if (flag.is_list() || flag.words > 1) {
            text += "[" + joined(words, ", ", toml_value) + "]";
        } else {
            text += toml_value(words.back());
        }
        text += "\n";
    }
    return text;
}

}  // namespace vocabpipe::tool
