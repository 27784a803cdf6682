// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/embedded_file.hpp"

#include <span>

namespace vocabpipe::embedded {

[[nodiscard]] std::span<const File> hardware();
[[nodiscard]] std::span<const File> page();  ///< parts of the page

}  // namespace vocabpipe::embedded
