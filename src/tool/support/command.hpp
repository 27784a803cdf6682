// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::tool {

class ConfigFile;

/// The words of every flag that was given, by its first name.
using GivenFlags = std::map<std::string, std::vector<std::string>, std::less<>>;

/// The message for a flag that is only known from scripts for other programs; "" for any other.
using Refusal = std::function<std::string(std::string_view flag)>;

/// A program or one of its subcommands: its name, its flags, and its function.
struct Command {
    std::string name = {};
    std::string description = {};       ///< its first line appears in the list of subcommands
    std::vector<FlagGroup> flags = {};  ///< with positional arguments
    /// Works with the current values of the flags. Results go to stdout, progress to stderr;
    /// failures are thrown.
    std::function<void(const GivenFlags& given)> run = {};
    std::vector<Command> commands = {};  ///< one of them must be given; empty: none
    std::string version = {};            ///< printed by --version; empty: no such flag
    ConfigFile* config = nullptr;        ///< its flags are among `flags`; null: no config file
    Refusal refusal = {};                ///< empty: no other flags are known
};

}  // namespace vocabpipe::tool
