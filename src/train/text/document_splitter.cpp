// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/document_splitter.hpp"

#include <utility>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr size_t kPieceBytes = size_t{1} << 18;    // hand on at the next end of line
constexpr size_t kMaxLineBytes = size_t{1} << 20;  // hand on within the line
constexpr std::string_view kSpace = " \t\r\v\f";

bool is_blank(std::string_view line) {
    return line.find_first_not_of(kSpace) == std::string_view::npos;
}

}  // namespace

DocumentSeparator parse_document_separator(std::string_view text) {
    if (text == "file") {
        return DocumentSeparator::file;
    }
    if (text == "blank-lines") {
        return DocumentSeparator::blank_lines;
    }
    if (text == "line") {
        return DocumentSeparator::line;
    }
    throw UsageError("--document-separator " + std::string(text) +
                     ": must be file, blank-lines or line");
}

size_t last_break(std::string_view text) {
    for (size_t at = text.size(); at-- > 1;) {
        if (kSpace.find(text[at]) != std::string_view::npos &&
            kSpace.find(text[at - 1]) == std::string_view::npos) {
            return at;
        }
    }
    // No white space: before the last byte that starts a character, which may be incomplete.
    for (size_t at = text.size(); at-- > 1 && text.size() - at <= 4;) {
        if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) {
            return at;
        }
    }
    return text.size();
}

DocumentSplitter::DocumentSplitter(DocumentSeparator separator, Sink sink)
    : separator_(separator), sink_(std::move(sink)) {}

void DocumentSplitter::feed(std::string_view block) {
    while (!block.empty()) {
        const size_t newline = block.find('\n');
        if (newline != std::string_view::npos) {
            line_.append(block.substr(0, newline));
            take_line(line_, true);
            line_.clear();
            block.remove_prefix(newline + 1);
            continue;
        }
        line_.append(block);
        block = {};
    }
    if (line_.size() > kMaxLineBytes) {
        const size_t cut = last_break(line_);
        take_line(std::string_view(line_).substr(0, cut), false);
        line_.erase(0, cut);
    }
}

void DocumentSplitter::take_line(std::string_view line, bool complete) {
    const bool continued = std::exchange(in_long_line_, !complete);
    const bool verbatim = separator_ == DocumentSeparator::file;
    if (!verbatim && complete && !continued && is_blank(line)) {
        if (separator_ == DocumentSeparator::blank_lines) {
            end_document();
        }
        return;
    }
    // A line may end with CR LF.
    if (!verbatim && complete && line.ends_with('\r')) {
        line.remove_suffix(1);
    }
    if (newline_pending_) {
        if (piece_.size() >= kPieceBytes) {
            flush();
        }
        piece_ += '\n';
        newline_pending_ = false;
    }
    piece_ += line;
    started_ = true;
    if (!complete) {
        flush();
    } else if (separator_ == DocumentSeparator::line) {
        end_document();
    } else {
        newline_pending_ = true;
    }
}

void DocumentSplitter::flush() {
    if (!piece_.empty()) {
        sink_.piece(piece_);
        piece_.clear();
    }
}

void DocumentSplitter::end_document() {
    newline_pending_ = false;
    flush();
    if (std::exchange(started_, false)) {
        sink_.end();
    }
}

void DocumentSplitter::end_file() {
    if (!line_.empty()) {
        take_line(line_, true);
        line_.clear();
        if (separator_ == DocumentSeparator::file) {
            newline_pending_ = false;  // the file did not end with one
        }
    }
    in_long_line_ = false;
    if (separator_ == DocumentSeparator::file && newline_pending_) {
        piece_ += '\n';
    }
    end_document();
}

}  // namespace vocabpipe
