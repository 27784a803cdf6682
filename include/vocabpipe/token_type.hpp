// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace vocabpipe {

/// Integer type of the tokens in a file; the values up to 8 are the codes of Megatron's .idx files.
enum class TokenType : uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8, u32 = 100 };

/// Bytes per token.
[[nodiscard]] int64_t token_bytes(TokenType type);

/// "u16" and so on.
[[nodiscard]] std::string_view token_type_name(TokenType type);

}  // namespace vocabpipe
