// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace vocabpipe::tool {

/// Width of the terminal that standard output is, asked for at each call, as its window may change.
/// Empty if it is none that a line can be rewritten on. Under mpirun every rank's output is a
/// pseudo-terminal, which has a size only if mpirun itself runs on a terminal.
[[nodiscard]] std::function<int()> terminal_columns();

}  // namespace vocabpipe::tool
