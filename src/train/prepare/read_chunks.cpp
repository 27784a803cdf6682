// SPDX-License-Identifier: Apache-2.0
#include "src/train/prepare/read_chunks.hpp"

#include <string_view>
#include <utility>

#include "src/train/text/json_line.hpp"
#include "src/train/text/parquet_texts.hpp"
#include "src/train/text/text_file.hpp"

namespace vocabpipe {

namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kChunkPieces = size_t{1} << 15;  // lines may be a few bytes long

/// Collects the pieces of one input.
class Chunks {
public:
    Chunks(size_t input, const std::function<void(TextChunk)>& take) : input_(input), take_(take) {
        begin();
    }

    void add(std::string_view text, const TextChunk::Piece& piece) {
        chunk_.text += text;
        chunk_.pieces.push_back(piece);
        chunk_.pieces.back().end = chunk_.text.size();
        if (chunk_.text.size() < kChunkBytes && chunk_.pieces.size() < kChunkPieces) return;
        take_(std::move(chunk_));
        begin();
    }
    void read(int64_t file_bytes) { chunk_.file_bytes += file_bytes; }
    void end(const Utf8Check& check) {
        chunk_.ends_input = true;
        chunk_.check = check;
        take_(std::move(chunk_));
    }

private:
    void begin() {
        chunk_ = {};
        chunk_.input = input_;
        chunk_.text.reserve(kChunkBytes + kChunkBytes / 4);
    }

    size_t input_;
    const std::function<void(TextChunk)>& take_;
    TextChunk chunk_;
};

void read_plain(const TextInput& input, DocumentSeparator separator, Chunks& chunks,
                const std::function<void()>& poll) {
    DocumentSplitter splitter(separator,
                              {.piece = [&](std::string_view text) { chunks.add(text, {}); },
                               .end = [&] { chunks.add({}, {.ends_document = true}); }});
    Utf8Check check;
    read_text_file(
        input.path,
        [&](std::string_view block) {
            poll();
            check.feed(block);
            splitter.feed(block);
        },
        [&](int64_t bytes) { chunks.read(bytes); });
    check.end();
    splitter.end_file();
    chunks.end(check);
}

void read_lines(const TextInput& input, Chunks& chunks, const std::function<void()>& poll) {
    LineSplitter splitter([&](const LineSplitter::Line& line) {
        if (is_blank_line(line.text) && !line.too_long) return;
        chunks.add(line.text,
                   {.line = line.number, .bad = line.too_long ? LineSplitter::kTooLong : nullptr});
    });
    read_text_file(
        input.path,
        [&](std::string_view block) {
            poll();
            splitter.feed(block);
        },
        [&](int64_t bytes) { chunks.read(bytes); });
    splitter.end_file();
    chunks.end({});
}

void read_rows(const TextInput& input, Chunks& chunks, const std::function<void()>& poll) {
    read_parquet_texts(
        input.path, input.json_key,
        [&](const TextRow& row) {
            chunks.add(row.bad == nullptr ? row.text : std::string_view(),
                       {.line = row.number, .bad = row.bad});
        },
        [&](int64_t bytes) {
            poll();
            chunks.read(bytes);
        });
    chunks.end({});
}

}  // namespace

void read_chunks(const std::vector<TextInput>& inputs, size_t index, DocumentSeparator separator,
                 const std::function<void(TextChunk)>& take, const std::function<void()>& poll) {
    Chunks chunks(index, take);
    if (inputs[index].json_key.empty()) {
        read_plain(inputs[index], separator, chunks, poll);
    } else if (inputs[index].parquet) {
        read_rows(inputs[index], chunks, poll);
    } else {
        read_lines(inputs[index], chunks, poll);
    }
}

}  // namespace vocabpipe
