// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/train/text/learnt_ranges.hpp"

namespace vocabpipe {

/// The ranges that [[begin, end], ...] names, as examples/chats/render_chats.py writes them.
/// std::invalid_argument, with the reason, unless they are bytes of a text of `text_bytes` bytes,
/// in order and without overlaps; an empty range is dropped.
[[nodiscard]] std::vector<LearntRange> learnt_ranges_from(const nlohmann::json& ranges,
                                                          size_t text_bytes);

}  // namespace vocabpipe
