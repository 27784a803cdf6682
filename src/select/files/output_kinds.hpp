// SPDX-License-Identifier: Apache-2.0
// The files that vocabpipe select may replace: such as it writes itself.
#pragma once

#include "src/support/output_check.hpp"

namespace vocabpipe {

[[nodiscard]] OutputKind scores_output();
[[nodiscard]] OutputKind graph_output();
[[nodiscard]] OutputKind subset_output();

}  // namespace vocabpipe
