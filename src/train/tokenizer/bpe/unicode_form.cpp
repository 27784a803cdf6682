// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/unicode_form.hpp"

#include "src/train/tokenizer/bpe/utf8.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int32_t kFirstHangul = 0xAC00;
constexpr int32_t kLastHangul = 0xD7A3;

bool composes(UnicodeForm form) {
    return form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
}

utf8proc_option_t decomposition(UnicodeForm form) {
    const bool compatible = form == UnicodeForm::nfkc || form == UnicodeForm::nfkd;
    return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                          (compatible ? UTF8PROC_COMPAT : 0));
}

/// Whether the form of the character alone may be another one. Below U+0300, NFC changes nothing.
bool may_change(UnicodeForm form, int32_t code) {
    if (code < 0x80 || (form == UnicodeForm::nfc && code < 0x300)) return false;
    if (code >= kFirstHangul && code <= kLastHangul) return !composes(form);
    return utf8proc_get_property(code)->decomp_seqindex != UINT16_MAX;
}

/// The characters that a character is decomposed into; no character has more than 18.
struct Parts {
    std::array<int32_t, 32> codes{};
    size_t count = 0;
};

Parts parts_of(UnicodeForm form, int32_t code) {
    Parts parts;
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code, parts.codes.data(), std::ssize(parts.codes), decomposition(form), &boundary);
    parts.count =
        static_cast<size_t>(std::clamp<utf8proc_ssize_t>(count, 0, std::ssize(parts.codes)));
    return parts;
}

/// A mark, a Hangul vowel or final consonant, a vowel of Kirat Rai, or what becomes one: may become
/// one character with what precedes it.
bool joins_previous(UnicodeForm form, int32_t code) {
    const utf8proc_category_t category = utf8proc_category(code);
    if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
        category == UTF8PROC_CATEGORY_ME || (code >= 0x1160 && code <= 0x11FF) ||
        (code >= 0x16D63 && code <= 0x16D6A)) {
        return true;
    }
    if (form != UnicodeForm::nfkc && form != UnicodeForm::nfkd) return false;
    if (!may_change(form, code)) return false;
    const int32_t first = parts_of(form, code).codes[0];
    return first != code && joins_previous(form, first);
}

int combining_class(int32_t code) {
    return utf8proc_get_property(code)->combining_class;
}

/// Memory of normalize().
struct Codes {
    std::vector<int32_t> codes;
    std::string text;
};

/// Leaves the form of `text` in memory.text. utf8proc_map() does the same, but sorts a run of n
/// marks in O(n^2).
void normalize(UnicodeForm form, std::string_view text, Codes& memory) {
    std::vector<int32_t>& codes = memory.codes;
    codes.clear();
    for (size_t at = 0; at < text.size(); at += valid_character_bytes(text[at])) {
        const Parts parts = parts_of(form, character_code(text, at));
        codes.insert(codes.end(), parts.codes.begin(), parts.codes.begin() + parts.count);
    }
    const auto begins_group = [](int32_t code) { return combining_class(code) == 0; };
    for (auto at = codes.begin(); at != codes.end();) {
        const auto marks = std::find_if_not(at, codes.end(), begins_group);
        at = std::find_if(marks, codes.end(), begins_group);
        std::stable_sort(marks, at, [](int32_t a, int32_t b) {
            return combining_class(a) < combining_class(b);
        });
    }
    if (composes(form)) {
        const utf8proc_ssize_t count = utf8proc_normalize_utf32(
            codes.data(), std::ssize(codes),
            static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        codes.resize(static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0)));
    }
    memory.text.clear();
    for (const int32_t code : codes) append_character(memory.text, code);
}

}  // namespace

TextPart in_unicode_form(UnicodeForm form, const TextPart& from, ChangedText& memory) {
    const std::string_view text = from.text;
    Codes codes;
    bool changed = false;
    size_t begin = 0;  // of the group: a character and the marks that follow it
    bool may = false;  // the group's form may be another one
    const auto end_group = [&](size_t end) {
        if (may) {
            normalize(form, text.substr(begin, end - begin), codes);
            if (codes.text != text.substr(begin, end - begin)) {
                if (!changed) memory.start(from);
                changed = true;
                memory.replace(begin, end, codes.text);
            }
        }
        begin = end;
        may = false;
    };
    for (size_t at = 0; at < text.size();) {
        const size_t ascii = end_of_ascii(text, at);
        if (ascii > at) {
            end_group(at);
            begin = ascii - 1;
            at = ascii;
            continue;
        }
        const int32_t code = character_code(text, at);
        if (joins_previous(form, code)) {
            may = true;
        } else {
            end_group(at);
            may = may_change(form, code);
        }
        at += valid_character_bytes(text[at]);
    }
    end_group(text.size());
    return changed ? memory.part() : from;
}

}  // namespace vocabpipe
