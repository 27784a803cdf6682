// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/support/command.hpp"
#include "src/tool/support/toml_reader.hpp"

#include <map>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// --config FILE: a TOML file whose keys are the names of the program's flags. The command line
/// takes precedence. A line that is not "flag = value" is a UsageError with file, line and a guess
/// at what was meant.
class ConfigFile {
public:
    static constexpr const char* kFlag = "--config";

    /// Reads files for a program with these flags. `refusal`: see Command::refusal.
    explicit ConfigFile(const std::vector<FlagGroup>& groups, Refusal refusal = {});
    ConfigFile(const ConfigFile&) = delete;
    ConfigFile& operator=(const ConfigFile&) = delete;

    /// --config and --print-config, which only the command line may have.
    [[nodiscard]] FlagGroup own_flags();
    /// Empty if --config is not given.
    [[nodiscard]] const std::string& path() const { return path_; }
    /// Whether --print-config asks for text() instead of a run.
    [[nodiscard]] bool print() const { return print_; }

    /// The assignments in the file at path(). `given`: flags on the command line.
    [[nodiscard]] std::vector<TomlAssignment> read(const GivenFlags& given);
    /// " (FILE:LINE)" if the message names a flag whose value comes from the file, else "".
    [[nodiscard]] std::string source_of(const std::string& message) const;
    /// The given flags, from file and command line, as a config file.
    [[nodiscard]] std::string text(const GivenFlags& given) const;

private:
    /// The row of a key such as "chunks"; null: none.
    [[nodiscard]] const Flag* flag_of(const std::string& key) const;
    [[nodiscard]] std::string unknown(const std::string& key) const;

    std::vector<Flag> flags_;
    Refusal refusal_;
    std::string path_;
    bool print_ = false;
    std::map<std::string, std::string> sources_;  ///< "--flag" -> "FILE:LINE"
};

}  // namespace vocabpipe::tool
