// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/support/output_file.hpp"
#include "vocabpipe/token_type.hpp"

namespace vocabpipe {

/// Writes a token shard of llm.c: of u16 tokens as its GPT-2 shards, of u32 as those of Llama 3.
/// The file appears complete or not at all. Failures are OutputFileErrors.
class LlmcWriter {
public:
    /// `tokens`: how many will follow, which the header says first. UsageError if it has no room
    /// for the number: at most 2^31 - 1. `vocab_size`: above all ids; decides the type.
    LlmcWriter(const std::string& path, int64_t vocab_size, int64_t tokens);

    void append(std::span<const int32_t> tokens);
    /// After as many tokens as were announced.
    void finish();
    [[nodiscard]] TokenType type() const { return type_; }
    [[nodiscard]] int64_t bytes() const { return file_.size(); }

private:
    OutputFile file_;
    TokenType type_;
    int64_t left_;
    std::vector<uint16_t> narrow_;  ///< scratch
};

}  // namespace vocabpipe
