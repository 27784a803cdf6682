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
/// whose documents are the strings of one key, or a Parquet file, whose documents are those of a
/// column.
struct TextInput {
    std::string path;
    std::string json_key = {};  ///< or column; empty: plain text
    bool chats = false;         ///< of JSON: every line says what is learnt of it
    bool parquet = false;       ///< rows instead of lines
};

/// What a file holds.
enum class TextKind : uint8_t { plain, json_lines, chats, parquet };

/// Plain text, unless the first line that is not blank is a JSON object; chats, if it says what is
/// learnt; or Parquet. InputFileError if the file cannot be read or holds an array: objects must
/// stand one per line.
[[nodiscard]] TextKind text_kind(const std::string& path);

/// "FILE", or "FILE and the other inputs", in messages about all of them.
[[nodiscard]] std::string about_inputs(const std::vector<TextInput>& inputs);
/// "FILE line N: reason", in messages about a line, or a row.
[[nodiscard]] std::string about_line(const TextInput& input, int64_t line, std::string_view reason);

/// Callbacks of read_text().
struct TextSink {
    /// A block of a text.
    std::function<void(std::string_view block)> text;
    /// The text has ended: the file, or one line's document.
    std::function<void()> end;
    /// A line of JSON, or a row, without a document, which is left out. Empty: it is an
    /// InputFileError.
    std::function<void(int64_t line, const std::string& reason)> bad_line = {};
};

/// Reads all of a file, holding one block, one line of JSON, or what read_parquet_texts() holds.
/// Errors as read_text_file() and read_parquet_texts(), and "FILE line N: ..." for a bad line.
void read_text(const TextInput& input, const TextSink& sink);

}  // namespace vocabpipe
