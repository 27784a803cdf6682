// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/embedded_file.hpp"

#include <span>

namespace vocabpipe::embedded {

/// Rules for ranges of known trainers, as TOML.
std::span<const File> range_rules();

}  // namespace vocabpipe::embedded
