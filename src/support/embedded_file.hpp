// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// Data files compiled into a library (src/cmake/VocabpipeEmbed.cmake), by name.

namespace vocabpipe::embedded {

struct File {
    std::string_view name;  ///< without folder and extension
    std::string_view text;
};

}  // namespace vocabpipe::embedded
