// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe::tool {

/// Whether what was given in place of a schedule is a trace: a .json file is either, and a trace
/// says so at its beginning.
[[nodiscard]] bool is_trace(const std::string& run);

}  // namespace vocabpipe::tool
