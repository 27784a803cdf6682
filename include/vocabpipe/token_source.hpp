// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vocabpipe/token_type.hpp"

namespace vocabpipe {

/// A position in the stream, as a file and the index of the token in this file.
struct TokenPlace {
    std::string file;      ///< path
    int64_t position = 0;  ///< token in the file, from 0
};

/// Description of a source, for people.
struct TokenSourceInfo {
    std::string name;    ///< as the user gave it: prefix, file or pattern
    std::string format;  ///< "Megatron indexed dataset", "llm.c GPT-2 shards", "raw u16"
    TokenType type = TokenType::u8;  ///< on disk
    int64_t documents = -1;          ///< -1: the format does not say
    int64_t sequences = -1;          ///< -1: the format does not say
    int32_t end_of_document = -1;    ///< token, if the format fixes it; -1: it does not
    int64_t bytes = 0;               ///< tokens and headers
    std::vector<std::string> files;  ///< of tokens, in stream order
    std::string index;               ///< file with the starts of documents; empty: none
    std::string loss_weights;        ///< file with read_loss_weights(); empty: all are 1
};

/// A stream of token ids. Reading is const and safe from several threads.
class TokenSource {
public:
    virtual ~TokenSource() = default;

    /// Tokens in the stream, all documents and files one after the other.
    [[nodiscard]] virtual int64_t size() const = 0;

    /// Copies the tokens first, first + 1, ... to `out`. The range must lie in [0, size()), else
    /// std::out_of_range. A stored value that is no int32 is an InputFileError.
    virtual void read(int64_t first, std::span<int32_t> out) const = 0;

    /// Where token `index` is stored; for messages.
    [[nodiscard]] virtual TokenPlace place(int64_t index) const = 0;

    /// Copies the weights of the tokens first, first + 1, ... to `out`: how much the loss of
    /// predicting each of them counts. They are finite and not negative. Range as for read().
    /// Default: 1. InputFileError if the file was damaged after it was opened.
    virtual void read_loss_weights(int64_t first, std::span<float> out) const;

    /// Copies the tokens at which the documents first, first + 1, ... begin to `out`; of
    /// info().documents, behind the last, that is size(). The range must lie in [0,
    /// info().documents], else std::out_of_range. std::logic_error if the format does not know
    /// documents, which is the default.
    virtual void read_document_starts(int64_t first, std::span<int64_t> out) const;

    /// One of them.
    [[nodiscard]] int64_t document_start(int64_t document) const {
        int64_t start = 0;
        read_document_starts(document, {&start, 1});
        return start;
    }

    /// For messages and reports; valid as long as this object.
    [[nodiscard]] virtual const TokenSourceInfo& info() const = 0;
};

}  // namespace vocabpipe
