// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// What `data prepare` is told.
struct PrepareArguments {
    std::vector<std::string> inputs;
    std::string output;
    std::string tokenizer;   ///< empty: bytes, or sentencepiece with a model file
    int64_t vocab_size = 0;  ///< 0: not given
    std::string tokenizer_model;
    std::string separator = "file";
    bool separator_given = false;
    std::string format = "auto";
    std::vector<std::string> json_keys = {"text"};
    int64_t max_bad_lines = 0;
    int64_t workers = 0;  ///< 0: not given

    /// Whether tokens are bytes.
    [[nodiscard]] bool keeps_bytes() const;
    /// Whether a vocabulary is trained.
    [[nodiscard]] bool trains() const;
    /// "--json-keys title text", for messages.
    [[nodiscard]] std::string keys_text() const;
    /// UsageError for arguments that contradict each other.
    void check() const;
    /// The same for the tokens of every key: with several, PREFIX_KEY_document is the prefix of its
    /// files, as Megatron names them. UsageError for an output that is no prefix.
    [[nodiscard]] std::vector<PrepareArguments> of_keys() const;
};

}  // namespace vocabpipe::tool
