// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "src/train/text/chat_line.hpp"
#include "src/train/text/line_splitter.hpp"

namespace vocabpipe {

/// A file of text, or of JSON lines (one object per line, as Megatron's preprocess_data.py reads),
/// whose documents are the strings of one key.
struct TextInput {
    std::string path;
    std::string json_key = {};  ///< empty: plain text
    bool chats = false;         ///< of JSON: every line says what is learnt of it
};

/// What a file holds.
enum class TextKind : uint8_t { plain, json_lines, chats };

/// Plain text, unless the first line that is not blank is a JSON object; chats, if it says what is
/// learnt. InputFileError if the file cannot be read or holds an array: objects must stand one per
/// line.
[[nodiscard]] TextKind text_kind(const std::string& path);

/// The document of a line of JSON; BadLine if it has none.
[[nodiscard]] std::string text_of_line(const TextInput& input, const LineSplitter::Line& line);
/// The same of a chat, with what is learnt.
[[nodiscard]] ChatLine chat_of_line(const TextInput& input, const LineSplitter::Line& line);

/// "FILE", or "FILE and the other inputs", in messages about all of them.
[[nodiscard]] std::string about_inputs(const std::vector<TextInput>& inputs);
/// "FILE line N: reason", in messages about a line.
[[nodiscard]] std::string about_line(const TextInput& input, int64_t line, std::string_view reason);

/// Callbacks of read_text().
struct TextSink {
    /// A block of a text.
    std::function<void(std::string_view block)> text;
    /// The text has ended: the file, or one line's document.
    std::function<void()> end;
    /// A line of JSON without a document, which is left out. Empty: it is an InputFileError.
    std::function<void(int64_t line, const std::string& reason)> bad_line = {};
};

/// Reads all of a file, holding one block or one line of JSON. Errors as read_text_file(), and
/// "FILE line N: ..." for a bad line.
void read_text(const TextInput& input, const TextSink& sink);

}  // namespace vocabpipe
