// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes: lines that do not depend on the blocks of the file, and of each a text in
// UTF-8, a chat whose ranges lie in its text, or a BadLine of one line.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "src/train/text/chat_line.hpp"
#include "src/train/text/json_line.hpp"
#include "src/train/text/line_splitter.hpp"
#include "src/train/text/utf8_check.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "src/train/tokenizer/encode_chat.hpp"

namespace {

using namespace vocabpipe;

std::vector<std::string> lines_of(std::string_view file, size_t block) {
    std::vector<std::string> lines;
    LineSplitter splitter([&](const LineSplitter::Line& line) {
        if (line.number != static_cast<int64_t>(lines.size()) + 1) std::abort();
        lines.emplace_back(line.text);
    });
    for (size_t at = 0; at < file.size(); at += block) splitter.feed(file.substr(at, block));
    splitter.end_file();
    return lines;
}

void check_text(const std::string& text) {
    Utf8Check check;
    check.feed(text);
    check.end();
    if (check.invalid() > 0) std::abort();
}

void check_chat(const ChatLine& chat) {
    check_text(chat.text);
    size_t end = 0;
    for (const LearntRange& range : chat.learn) {
        if (range.begin < end || range.end <= range.begin) std::abort();
        end = range.end;
    }
    if (end > chat.text.size()) std::abort();
    std::vector<int32_t> ids;
    std::vector<float> weights;
    encode_chat(ByteTokenizer(), chat.text, chat.learn, ids, weights);
    if (ids.size() != weights.size()) std::abort();
}

template <typename Read>
void expect_one_line(const Read& read) {
    try {
        read();
    } catch (const BadLine& bad) {
        if (std::strchr(bad.what(), '\n') != nullptr) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    const std::vector<std::string> lines = lines_of(file, size + 1);
    if (lines != lines_of(file, 3)) std::abort();
    for (const std::string& line : lines) {
        (void)is_blank_line(line);
        (void)is_chat_line(line);
        expect_one_line([&] { check_text(text_of_json_line(line, "text")); });
        expect_one_line([&] { check_chat(chat_of_json_line(line, "text")); });
    }
    return 0;
}
