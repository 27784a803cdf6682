// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// --config FILE: a TOML file whose keys are the names of the program's flags, without tables.
/// What the command line says wins. Stricter than CLI11's own reader, which takes a line without
/// "=" for a flag and cuts text at "#": every line that is no "flag = value" is a UsageError with
/// file, line and what was meant.
class ConfigFile final : public CLI::Config {
public:
    /// Adds --config and --print-config to `app`, after all other flags.
    static std::shared_ptr<ConfigFile> add_to(CLI::App& app);

    /// " (FILE:LINE)" if the message names a flag that has its value from the file, else "".
    [[nodiscard]] std::string source_of(const std::string& message) const;
    /// Whether --print-config asks for to_config() instead of a run.
    [[nodiscard]] bool print() const { return print_; }

    [[nodiscard]] std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;
    /// The flags that were given, whether by file or command line, as such a file.
    [[nodiscard]] std::string to_config(const CLI::App* app, bool defaults, bool descriptions,
                                        std::string prefix) const override;

private:
    explicit ConfigFile(CLI::App& app) : app_(app) {}

    CLI::App& app_;
    bool print_ = false;
    mutable std::map<std::string, std::string> sources_;  ///< "--flag" -> "FILE:LINE"
};

}  // namespace vocabpipe::tool
