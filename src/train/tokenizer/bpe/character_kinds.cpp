// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/character_kinds.hpp"

#include <utf8proc.h>

namespace vocabpipe {

bool is_white_space(int32_t code) {
    return (code >= '\t' && code <= '\r') || code == ' ' || code == 0x85 || code == 0xA0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_word_character(int32_t code) {
    switch (utf8proc_category(code)) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            // Joiners, and the circled letters, which are alphabetic symbols.
            return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
                   (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
                   (code >= 0x1F170 && code <= 0x1F189);
    }
}

}  // namespace vocabpipe
