// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <string>

namespace vocabpipe::html {

/// The run as JSON for decodeRun() of data.js: columns of integers, one entry per slice.
[[nodiscard]] std::string run_data(const RecordedRun& run);

}  // namespace vocabpipe::html
