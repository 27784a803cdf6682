// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

// Data files compiled into the library (src/cmake/VocabpipeEmbed.cmake), by name.

namespace vocabpipe::embedded {

struct File {
    std::string_view name;  ///< without folder and extension
    std::string_view text;
};

[[nodiscard]] std::span<const File> models();
[[nodiscard]] std::span<const File> hardware();
[[nodiscard]] std::span<const File> pages();

}  // namespace vocabpipe::embedded
