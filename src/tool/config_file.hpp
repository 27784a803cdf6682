// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/command.hpp"
#include "src/tool/toml_reader.hpp"

#include <map>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// --config FILE: a TOML file whose keys are the names of the program's flags. What the command
/// line says wins. Every line that is no "flag = value" is a UsageError with file, line and what
/// was meant.
class ConfigFile {
public:
    static constexpr const char* kFlag = "--config";

    /// Reads files for a program with these flags. `refusal`: as Command::refusal.
    explicit ConfigFile(const std::vector<FlagGroup>& groups, Refusal refusal = {});
    ConfigFile(const ConfigFile&) = delete;
    ConfigFile& operator=(const ConfigFile&) = delete;

    /// --config and --print-config: of the command line alone.
    [[nodiscard]] FlagGroup own_flags();
    /// Empty: none is given.
    [[nodiscard]] const std::string& path() const { return path_; }
    /// Whether --print-config asks for text() instead of a run.
    [[nodiscard]] bool print() const { return print_; }

    /// What the file at path() says. `given`: on the command line.
    [[nodiscard]] std::vector<TomlAssignment> read(const GivenFlags& given);
    /// " (FILE:LINE)" if the message names a flag that has its value from the file, else "".
    [[nodiscard]] std::string source_of(const std::string& message) const;
    /// The flags that were given, whether by file or command line, as such a file.
    [[nodiscard]] std::string text(const GivenFlags& given) const;

private:
    /// The row of "chunks"; null: there is none.
    [[nodiscard]] const Flag* flag_of(const std::string& key) const;
    [[nodiscard]] std::string unknown(const std::string& key) const;

    std::vector<Flag> flags_;
    Refusal refusal_;
    std::string path_;
    bool print_ = false;
    std::map<std::string, std::string> sources_;  ///< "--flag" -> "FILE:LINE"
};

}  // namespace vocabpipe::tool
