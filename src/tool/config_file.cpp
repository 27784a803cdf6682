// SPDX-License-Identifier: Apache-2.0
#include "src/tool/config_file.hpp"

#include "src/support/nearest_name.hpp"
#include "src/tool/toml_reader.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace vocabpipe::tool {

namespace {

constexpr const char* kFlag = "--config";

/// Throws UsageError for what is no file to read.
std::string existing_file(const std::string& path) {
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    if (std::filesystem::is_regular_file(status)) return "";
    const char* const is = std::filesystem::is_directory(status) ? "is a folder"
                           : std::filesystem::exists(status)     ? "is no regular file"
                                                                 : "there is no such file";
    throw UsageError(std::string(kFlag) + " " + path + ": " + is + "; give a TOML file with flags");
}

bool is_switch(const CLI::Option& option) {
    return option.get_items_expected_max() == 0;
}

}  // namespace

std::shared_ptr<ConfigFile> ConfigFile::add_to(CLI::App& app) {
    std::shared_ptr<ConfigFile> file(new ConfigFile(app));
    app.set_config(kFlag, "", "TOML file with the names of these flags; those given here win")
        ->type_name("FILE")
        ->check(CLI::Validator(existing_file, ""));
    app.add_flag("--print-config", file->print_,
                 "Print the flags that are given, by file and here, as such a file, and end")
        ->configurable(false);
    app.config_formatter(file);
    return file;
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

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& input) const {
    const std::string text{std::istreambuf_iterator<char>(input), {}};
    const auto path = app_.get_option(kFlag)->as<std::string>();
    const auto refuse = [&](int line, const std::string& what) {
        throw UsageError(std::string(kFlag) + " " + path + ":" + std::to_string(line) + ": " +
                         what);
    };
    std::vector<std::string_view> known;
    for (const CLI::Option* option : app_.get_options()) {
        if (!option->get_configurable()) continue;
        for (const std::string& name : option->get_lnames()) known.push_back(name);
    }
    std::vector<CLI::ConfigItem> items;
    std::map<const CLI::Option*, int> lines;
    TomlReader reader(text);
    try {
        while (const std::optional<TomlAssignment> found = reader.next()) {
            const std::string& key = found->key;
            if (std::find(known.begin(), known.end(), key) == known.end()) {
                const bool is_flag = app_.get_option_no_throw("--" + key) != nullptr;
                refuse(found->line, is_flag
                                        ? "--" + key + " works on the command line only"
                                        : "there is no flag --" + key + did_you_mean(key, known));
            }
            const CLI::Option& option = *app_.get_option("--" + key);
            if (const auto [before, is_new] = lines.emplace(&option, found->line); !is_new) {
                refuse(found->line,
                       "--" + key + " is in line " + std::to_string(before->second) + " already");
            }
            if (is_switch(option) && (!found->is_boolean || found->is_array)) {
                refuse(found->line, "--" + key + " is a switch: true or false");
            }
            const int most = option.get_items_expected_max();
            if (found->is_array && (found->values.empty() || std::ssize(found->values) > most)) {
                refuse(found->line, "--" + key + " takes " +
                                        (most == 1 ? "one value" : "at least one value") +
                                        ", not " + std::to_string(found->values.size()));
            }
            if (option.empty()) {
                sources_["--" + key] = path + ":" + std::to_string(found->line);
            }
            items.push_back({.name = key, .inputs = found->values});
        }
    } catch (const TomlError& error) {
        refuse(error.line, error.what());
    }
    return items;
}

std::string ConfigFile::to_config(const CLI::App* app, bool /*defaults*/, bool /*descriptions*/,
                                  std::string /*prefix*/) const {
    std::string text;
    for (const CLI::Option* option : app->get_options()) {
        if (!option->get_configurable() || option->empty() || option->get_lnames().empty())
            continue;
        std::vector<std::string> values = option->results();
        if (is_switch(*option)) {
            // A switch given twice is one that was overruled.
            text += option->get_lnames().front() + " = " +
                    (values.back() == "false" ? "false" : "true") + "\n";
            continue;
        }
        const bool many = option->get_items_expected_max() > 1;
        if (!many) values.erase(values.begin(), values.end() - 1);
        std::string joined;
        for (const std::string& value : values) {
            joined += (joined.empty() ? "" : ", ") + toml_value(value);
        }
        text += option->get_lnames().front() + " = " + (many ? "[" + joined + "]" : joined) + "\n";
    }
    return text;
}

}  // namespace vocabpipe::tool
