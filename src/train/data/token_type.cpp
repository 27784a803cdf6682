// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/token_type.hpp"

namespace vocabpipe {

int64_t token_bytes(TokenType type) {
    switch (type) {
        case TokenType::u8:
        case TokenType::i8:
            return 1;
        case TokenType::i16:
        case TokenType::u16:
            return 2;
        case TokenType::i32:
        case TokenType::u32:
            return 4;
        case TokenType::i64:
            return 8;
    }
    return 0;
}

std::string_view token_type_name(TokenType type) {
    switch (type) {
        case TokenType::u8:
            return "u8";
        case TokenType::i8:
            return "i8";
        case TokenType::i16:
            return "i16";
        case TokenType::i32:
            return "i32";
        case TokenType::i64:
            return "i64";
        case TokenType::u16:
            return "u16";
        case TokenType::u32:
            return "u32";
    }
    return "unknown";
}

}  // namespace vocabpipe
