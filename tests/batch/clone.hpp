// SPDX-License-Identifier: Apache-2.0
// The folder in which somebody types the commands of docs/clusters.md.
#pragma once

#include "tests/faults/launch.hpp"

#include <string>
#include <vector>

namespace vocabpipe::testing {

/// A checkout with a build and the data `book`, whose train_gpt gets `more` flags behind those that
/// are typed: what makes a documented run small.
void make_clone(const std::string& folder, const Arguments& more);

/// The commands under a heading of docs/clusters.md, in their order.
[[nodiscard]] std::vector<std::string> documented_commands(const std::string& heading);

}  // namespace vocabpipe::testing
