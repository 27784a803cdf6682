// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vocabpipe/token_type.hpp"

namespace vocabpipe::llmc {

/// 256 i32: magic, version, number of tokens, zeros.
inline constexpr uint64_t kShardHeaderBytes = 1024;

/// Shards of one kind.
struct Family {
    int32_t magic, version;
    TokenType type;
    const char* name;
    int32_t end_of_document;  ///< <|endoftext|>; in Llama 3, <|begin_of_text|>
};
inline constexpr Family kGpt2{20240520, 1, TokenType::u16, "llm.c GPT-2 shard", 50256};
inline constexpr Family kLlama3{20240801, 7, TokenType::u32, "llm.c Llama 3 shard", 128000};

}  // namespace vocabpipe::llmc
