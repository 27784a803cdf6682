// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe::bindings {

/// The message with names of arguments in place of options of the library and flags of the tool:
/// "vocab_size" for ScheduleOptions::vocab_size and --vocab-size.
[[nodiscard]] std::string argument_names(const std::string& message);

}  // namespace vocabpipe::bindings
