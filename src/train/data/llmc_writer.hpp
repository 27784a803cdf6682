// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/support/output_file.hpp"
#include "vocabpipe/token_type.hpp"

namespace vocabpipe {

/// Writes an llm.c token shard: u16 tokens in the format of its GPT-2 shards, u32 in that of Llama
/// 3. The file appears complete or not at all; loss weights of an older one are removed. Failures
/// are OutputFileErrors.
class LlmcWriter {
public:
    /// `tokens`: number of tokens that will follow, for the header; UsageError above 2^31 - 1.
    /// `vocab_size`: above all ids; decides the type.
    LlmcWriter(const std::string& path, int64_t vocab_size, int64_t tokens);

    void append(std::span<const int32_t> tokens);
    /// Call after the announced number of tokens.
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
