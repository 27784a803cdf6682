// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe {

/// The newest of the steps in a folder whose training.json and config.json are whole, as far as
/// these two say; where no step's are, the newest. The folder must have steps.
[[nodiscard]] std::string newest_described_step(const std::string& root);

}  // namespace vocabpipe
