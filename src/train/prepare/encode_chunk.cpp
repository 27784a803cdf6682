// SPDX-License-Identifier: Apache-2.0
#include "src/train/prepare/encode_chunk.hpp"

#include <string_view>

#include "src/train/text/chat_line.hpp"
#include "src/train/text/document_splitter.hpp"
#include "src/train/text/json_line.hpp"
#include "src/train/tokenizer/encode_chat.hpp"

namespace vocabpipe {

namespace {

class ChunkEncoder {
public:
    ChunkEncoder(const Tokenizer& tokenizer, const std::function<void()>& poll)
        : tokenizer_(tokenizer),
          poll_(poll),
          splitter_(DocumentSeparator::file, {.piece = [this](std::string_view text) { add(text); },
                                              .end = [this] { end_document(); }}) {}

    void add(std::string_view text) {
        poll_();
        EncodedChunk::Piece piece;
        tokenizer_.encode(text, piece.ids);
        encoded_.pieces.push_back(std::move(piece));
        begun_ = true;
    }
    void end_document() {
        // The document may have begun in the chunk before.
        if (!begun_) encoded_.pieces.emplace_back();
        encoded_.pieces.back().ids.push_back(tokenizer_.end_of_document());
        encoded_.pieces.back().ends_document = true;
        begun_ = false;
    }
    /// A whole document, cut into pieces as plain text is.
    void add_document(std::string_view text) {
        splitter_.feed(text);
        splitter_.end_file();
    }
    /// A whole chat, encoded at once.
    void add_chat(const ChatLine& chat) {
        if (chat.text.empty()) return;
        poll_();
        EncodedChunk::Piece piece{.ends_document = true};
        encode_chat(tokenizer_, chat.text, chat.learn, piece.ids, piece.weights);
        encoded_.pieces.push_back(std::move(piece));
    }
    void add_bad_line(int64_t line, const char* reason) {
        if (encoded_.bad_line_count++ < kNamedBadLines) {
            encoded_.bad_lines.push_back({line, reason});
        }
    }
    [[nodiscard]] EncodedChunk take() { return std::move(encoded_); }

private:
    const Tokenizer& tokenizer_;
    const std::function<void()>& poll_;
    DocumentSplitter splitter_;
    EncodedChunk encoded_;
    bool begun_ = false;  ///< the last piece belongs to a document that has not ended
};

}  // namespace

EncodedChunk encode_chunk(const TextChunk& chunk, const TextInput& input,
                          const Tokenizer& tokenizer, const std::function<void()>& poll) {
    ChunkEncoder encoder(tokenizer, poll);
    size_t begin = 0;
    for (const TextChunk::Piece& piece : chunk.pieces) {
        const auto text = std::string_view(chunk.text).substr(begin, piece.end - begin);
        begin = piece.end;
        if (piece.bad != nullptr) {
            encoder.add_bad_line(piece.line, piece.bad);
            continue;
        }
        if (!input.json_key.empty()) {
            try {
                if (input.parquet) {
                    encoder.add_document(text);
                } else if (input.chats) {
                    encoder.add_chat(chat_of_json_line(text, input.json_key));
                } else {
                    encoder.add_document(text_of_json_line(text, input.json_key));
                }
            } catch (const BadLine& bad) {
                encoder.add_bad_line(piece.line, bad.what());
            }
            continue;
        }
        if (!text.empty()) encoder.add(text);
        if (piece.ends_document) encoder.end_document();
    }
    return encoder.take();
}

}  // namespace vocabpipe
