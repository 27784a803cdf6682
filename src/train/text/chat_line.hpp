// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/train/text/learnt_ranges.hpp"

namespace vocabpipe {

/// A chat that examples/chats/render_chats.py wrote as {"text": ..., "learn": [[begin, end], ...]}.
struct ChatLine {
    std::string text;
    std::vector<LearntRange> learn;  ///< none is empty
};

/// The chat of a line whose text is under `key`. BadLine as text_of_json_line(), and unless "learn"
/// is a list of ranges of the text's bytes, in order and without overlaps. Memory: likewise, and
/// the ranges.
[[nodiscard]] ChatLine chat_of_json_line(std::string_view line, const std::string& key);

/// Whether the line is a JSON object that has "learn".
[[nodiscard]] bool is_chat_line(std::string_view line);

}  // namespace vocabpipe
