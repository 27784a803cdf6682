// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// All forwards, then all backwards: all m microbatches in flight.
[[nodiscard]] Schedule gpipe(const GenerateOptions& options);

}  // namespace vocabpipe
