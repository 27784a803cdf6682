// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/trace_files.hpp"

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace vocabpipe::tool {

bool is_trace(const std::string& run) {
    std::error_code none_there;
    if (!run.ends_with(".json") || !std::filesystem::is_regular_file(run, none_there)) return false;
    std::ifstream file(run, std::ios::binary);
    // Other profilers describe their devices first, so read more than a few bytes.
    std::string head(size_t{1} << 20, ' ');
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    return head.find("\"traceEvents\"") != std::string::npos;
}

}  // namespace vocabpipe::tool
