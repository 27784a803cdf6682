// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe::tool {

/// Whether an argument for a schedule is a trace: a .json file may be either, and a trace says so
/// at its beginning.
[[nodiscard]] bool is_trace(const std::string& run);

}  // namespace vocabpipe::tool
