// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe {

/// The newest step in a folder whose training.json and config.json can be read and parsed; if no
/// step has both, the newest step. The folder must have steps.
[[nodiscard]] std::string newest_described_step(const std::string& root);

}  // namespace vocabpipe
