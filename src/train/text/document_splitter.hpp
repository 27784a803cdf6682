// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// What ends a document, besides the end of a file.
enum class DocumentSeparator : uint8_t {
    file,         // nothing; the text is kept byte for byte
    blank_lines,  // one or more lines of white space
    line,         // every line is a document
};

/// "file", "blank-lines" or "line" (the flag --document-separator); UsageError otherwise.
[[nodiscard]] DocumentSeparator parse_document_separator(std::string_view text);

/// Cuts blocks of text into documents and these into pieces of at most about 1 MiB, so that a file
/// of any size, with lines of any length, is processed in bounded memory. A piece ends before a
/// newline, else before white space, else between two UTF-8 characters. Documents without text are
/// dropped.
class DocumentSplitter {
public:
    struct Sink {
        std::function<void(std::string_view)> piece;  // the next piece of the current document
        std::function<void()> end;                    // the current document is complete
    };

    DocumentSplitter(DocumentSeparator separator, Sink sink);

    void feed(std::string_view block);
    void end_file();

private:
    void take_line(std::string_view line, bool complete);
    void flush();
    void end_document();

    DocumentSeparator separator_;
    Sink sink_;
    std::string line_;              // the line so far
    std::string piece_;             // complete lines not handed on yet
    bool in_long_line_ = false;     // line_ continues one that was handed on in part
    bool newline_pending_ = false;  // a newline that only counts if the document goes on
    bool started_ = false;          // the document has text
};

/// The last place in `text`, after its first byte, where a piece may end: before white space that
/// follows other text, else between two UTF-8 characters.
[[nodiscard]] size_t last_break(std::string_view text);

}  // namespace vocabpipe
