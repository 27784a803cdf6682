// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe::tool {

/// Prints a line to standard error, on the first process of a launch, for each key of a config.json
/// that is read but not used. Nothing for a path without a file, such as the name of a built-in
/// model.
void print_config_notes(const std::string& path);

}  // namespace vocabpipe::tool
