// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace vocabpipe::tool {

/// Returns a function for the width of standard output's terminal, queried at each call, as its
/// window may change. Empty if it is no terminal on which a line can be rewritten. Under mpirun
/// every rank's output is a pseudo-terminal, which has a size only if mpirun itself runs on a
/// terminal.
[[nodiscard]] std::function<int()> terminal_columns();

/// Whether standard output shows colors and underlines: it is a terminal that can, and NO_COLOR
/// (https://no-color.org) does not forbid them.
[[nodiscard]] bool wants_color();

}  // namespace vocabpipe::tool
