// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/sentencepiece_tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <array>
#include <utility>

#include "src/train/data/identify_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

struct SentencePieceTokenizer::Model {
    sentencepiece::SentencePieceProcessor processor;
    int32_t end_of_document = -1;
};

namespace {

int32_t find_end_of_document(const sentencepiece::SentencePieceProcessor& processor) {
    if (processor.eos_id() >= 0) {
        return processor.eos_id();
    }
    for (const char* piece : std::array{"</s>", "<|endoftext|>", "<eod>"}) {
        const int id = processor.PieceToId(piece);
        if (processor.IdToPiece(id) == piece) {
            return id;
        }
    }
    return -1;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string_view model, const std::string& name)
    : model_(std::make_unique<Model>()) {
    const auto status = model_->processor.LoadFromSerializedProto(model);
    if (!status.ok()) {
        const FileIdentity found = identify_bytes(std::as_bytes(std::span(model)));
        throw InputFileError(
            name + ": is not a SentencePiece model or is damaged (it looks like " +
            found.description +
            "); use a .model file, such as the PREFIX.model that vocabpipe data prepare writes");
    }
    model_->end_of_document = find_end_of_document(model_->processor);
    if (model_->end_of_document < 0) {
        throw InputFileError(name +
                             ": the vocabulary has no piece </s>, <|endoftext|> or <eod> to end a "
                             "document; train one with vocabpipe data prepare");
    }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

int64_t SentencePieceTokenizer::vocab_size() const {
    return model_->processor.GetPieceSize();
}

int32_t SentencePieceTokenizer::end_of_document() const {
    return model_->end_of_document;
}

int32_t SentencePieceTokenizer::begin_of_document() const {
    return model_->processor.bos_id();
}

void SentencePieceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
    std::vector<int> part;
    const auto status = model_->processor.Encode(text, &part);
    if (!status.ok()) {
        throw Error(ExitCode::failed, "SentencePiece cannot encode: " + status.ToString());
    }
    ids.insert(ids.end(), part.begin(), part.end());
}

void SentencePieceTokenizer::encode_with_begins(std::string_view text, std::vector<int32_t>& ids,
                                                std::vector<size_t>& begins) const {
    sentencepiece::ImmutableSentencePieceText pieces;
    const auto status = model_->processor.Encode(text, pieces.mutable_proto());
    if (!status.ok()) {
        throw Error(ExitCode::failed, "SentencePiece cannot encode: " + status.ToString());
    }
    for (const auto& piece : pieces.pieces()) {
        ids.push_back(static_cast<int32_t>(piece.id()));
        begins.push_back(piece.begin());
    }
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
    std::vector<int> known;
    known.reserve(ids.size());
    for (const int32_t id : ids) {
        if (id >= 0 && id < vocab_size() && id != end_of_document()) {
            known.push_back(id);
        }
    }
    std::string text;
    const auto status = model_->processor.Decode(known, &text);
    if (!status.ok()) {
        throw Error(ExitCode::failed, "SentencePiece cannot decode: " + status.ToString());
    }
    return text;
}

std::string SentencePieceTokenizer::special_name(int32_t id) const {
    if (id < 0 || id >= vocab_size()) return {};
    const bool special = id == end_of_document() || model_->processor.IsControl(id);
    return special ? model_->processor.IdToPiece(id) : std::string();
}

}  // namespace vocabpipe
