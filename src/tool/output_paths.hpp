// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// Throws UsageError if `output`, what `flag` names, is one of the files that the command reads:
/// the same file, whatever the spelling. Inputs that are no files count as spelt.
void refuse_input_as_output(std::string_view flag, const std::string& output,
                            std::span<const std::string> inputs);

}  // namespace vocabpipe::tool
