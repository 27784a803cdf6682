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

/// The words of every flag that was given, by the first of its names.
using GivenFlags = std::map<std::string, std::vector<std::string>, std::less<>>;

/// What is said of a flag that no row has but scripts for other programs do; "" of any other.
using Refusal = std::function<std::string(std::string_view flag)>;

/// A program or one of its subcommands: what it is called, what it reads, and what it does.
struct Command {
    std::string name = {};
    std::string description = {};       ///< its first line is that of the list of subcommands
    std::vector<FlagGroup> flags = {};  ///< positional arguments as well
    /// Works with the values that the flags have now. Results go to stdout, progress to stderr,
    /// failures are thrown.
    std::function<void(const GivenFlags& given)> run = {};
    std::vector<Command> commands = {};  ///< one of them is given; empty: there are none
    std::string version = {};            ///< what --version prints; empty: there is no such flag
    ConfigFile* config = nullptr;        ///< whose flags are among `flags`; null: no such file
    Refusal refusal = {};                ///< empty: nothing is known of other flags
};

}  // namespace vocabpipe::tool
