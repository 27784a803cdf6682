// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// The best of all repeated patterns on the V placement for the given costs that keep at most
/// memory_limit chunks alive on every rank.
[[nodiscard]] Schedule v_search(const GenerateOptions& options);

}  // namespace vocabpipe
