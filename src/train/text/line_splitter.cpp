// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/line_splitter.hpp"

namespace vocabpipe {

std::string_view without_byte_order_mark(std::string_view text) {
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

void LineSplitter::append(std::string_view part) {
    too_long_ = too_long_ || part.size() > kMostBytes - line_.size();
    if (too_long_) {
        line_ = {};
    } else {
        line_.append(part);
    }
}

void LineSplitter::take_line() {
    ++number_;
    const std::string_view line = number_ == 1 ? without_byte_order_mark(line_) : line_;
    take_({.number = number_, .text = line, .too_long = too_long_});
    line_.clear();
    too_long_ = false;
}

void LineSplitter::feed(std::string_view block) {
    for (size_t end = block.find('\n'); end != std::string_view::npos; end = block.find('\n')) {
        append(block.substr(0, end));
        take_line();
        block.remove_prefix(end + 1);
    }
    append(block);
}

void LineSplitter::end_file() {
    if (!line_.empty() || too_long_) take_line();
    number_ = 0;
}

}  // namespace vocabpipe
