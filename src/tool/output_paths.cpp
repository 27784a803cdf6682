// SPDX-License-Identifier: Apache-2.0
#include "src/tool/output_paths.hpp"

#include "vocabpipe/error.hpp"

#include <filesystem>
#include <system_error>

namespace vocabpipe::tool {

void refuse_input_as_output(std::string_view flag, const std::string& output,
                            std::span<const std::string> inputs) {
    std::error_code none_there;
    for (const std::string& input : inputs) {
        if (output != input && !std::filesystem::equivalent(output, input, none_there)) continue;
        throw UsageError(std::string(flag) + " " + output +
                         ": is read by the same command and would be replaced; give another name");
    }
}

}  // namespace vocabpipe::tool
