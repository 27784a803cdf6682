// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/pattern_syntax.hpp"

#include "src/train/tokenizer/bpe/utf8.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace vocabpipe {

namespace {

/// Unicode's White_Space. PCRE2's \s has U+180E besides.
constexpr std::string_view kWhiteSpace =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
/// Oniguruma's \w. PCRE2's lacks marks and connectors.
constexpr std::string_view kWordCharacters = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";

bool is_general_category(std::string_view name) {
    constexpr std::string_view kClasses = "CLMNPSZ";
    return (name.size() == 1 || (name.size() == 2 && std::islower(name[1]) != 0)) &&
           kClasses.find(name[0]) != std::string_view::npos;
}

class Translation {
public:
    explicit Translation(std::string_view pattern) : pattern_(pattern) {}

    std::string run() {
        while (at_ < pattern_.size()) {
            const char c = pattern_[at_];
            if (c == '\\') {
                escape(/*in_class=*/false);
            } else if (c == '[') {
                character_class();
            } else if (c == '(') {
                group();
            } else if (c == '{') {
                braces();
            } else {
                copy(valid_character_bytes(c));
            }
        }
        return std::move(result_);
    }

private:
    [[noreturn]] void refuse(std::string_view part) const {
        throw UsageError("the pattern's \"" + std::string(part) + "\" is not supported");
    }
    [[nodiscard]] std::string_view rest() const { return pattern_.substr(at_); }

    void copy(size_t bytes) {
        result_ += pattern_.substr(at_, bytes);
        at_ += bytes;
    }

    void white_space_or(bool in_class, bool negated, std::string_view set) {
        if (in_class && negated) refuse("[" + std::string(rest().substr(0, 2)) + "]");
        result_ += in_class ? std::string(set) : (negated ? "[^" : "[") + std::string(set) + "]";
        at_ += 2;
    }

    /// A backslash and what belongs to it.
    void escape(bool in_class) {
        if (at_ + 1 == pattern_.size()) refuse("\\");
        const char c = pattern_[at_ + 1];
        switch (c) {
            case 's':
            case 'S':
                return white_space_or(in_class, c == 'S', kWhiteSpace);
            case 'w':
            case 'W':
                return white_space_or(in_class, c == 'W', kWordCharacters);
            case 'd':
            case 'D':
                result_ += c == 'd' ? "\\p{Nd}" : "\\P{Nd}";
                at_ += 2;
                return;
            case 'p':
            case 'P':
                return property();
            case 'n':
            case 'r':
            case 't':
            case 'f':
                return copy(2);
            case 'u':
                return code(4);
            case 'x':
                if (rest().substr(0, 3) == "\\x{") return code_in_braces();
                return code(2);
            default:
                if (std::ispunct(static_cast<unsigned char>(c)) == 0) refuse(rest().substr(0, 2));
                return copy(2);
        }
    }

    /// \uHHHH; \xHH, which is a byte, and so a character only below 80.
    void code(size_t digits) {
        const std::string_view hex = rest().substr(2, digits);
        const bool whole = hex.size() == digits && std::ranges::all_of(hex, [](unsigned char c) {
                               return std::isxdigit(c) != 0;
                           });
        if (!whole || (digits == 2 && hex[0] > '7')) refuse(rest().substr(0, 2 + digits));
        result_ += "\\x{" + std::string(hex) + "}";
        at_ += 2 + digits;
    }

    void code_in_braces() {
        const size_t end = rest().find('}');
        const std::string_view hex = rest().substr(3, end == std::string_view::npos ? 0 : end - 3);
        const bool whole = !hex.empty() && std::ranges::all_of(hex, [](unsigned char c) {
            return std::isxdigit(c) != 0;
        });
        if (!whole) refuse(rest().substr(0, 12));
        copy(end + 1);
    }

    /// \p{L}, \P{Lu}, \p{^L} and scripts.
    void property() {
        const size_t end = rest().find('}');
        if (rest().substr(2, 1) != "{" || end == std::string_view::npos) {
            refuse(rest().substr(0, 3));
        }
        std::string_view name = rest().substr(3, end - 3);
        bool negated = pattern_[at_ + 1] == 'P';
        if (name.starts_with('^')) {
            negated = !negated;
            name.remove_prefix(1);
        }
        const bool letters = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
            return std::isalpha(c) != 0 || c == '_';
        });
        if (!letters) refuse(rest().substr(0, end + 1));
        result_ += negated ? "\\P{" : "\\p{";
        // PCRE2's \p{Han} also takes characters that several scripts share.
        if (!is_general_category(name)) result_ += "sc:";
        result_ += std::string(name) + "}";
        at_ += end + 1;
    }

    void character_class() {
        copy(1);
        if (rest().starts_with('^')) copy(1);
        if (rest().starts_with(']')) refuse("[]");
        while (!rest().starts_with(']')) {
            if (rest().empty()) refuse("[ without ]");
            if (rest().starts_with('\\')) {
                escape(/*in_class=*/true);
            } else if (rest().starts_with('[') || rest().starts_with("&&")) {
                refuse(rest().starts_with('[') ? "[ within [ ]" : "&&");
            } else {
                copy(valid_character_bytes(pattern_[at_]));
            }
        }
        copy(1);
    }

    void group() {
        constexpr std::array<std::string_view, 7> kKinds{
            "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
        // In the middle of a pattern it also groups what follows, in Oniguruma alone.
        if (at_ == 0 && rest().starts_with("(?i)")) return copy(4);
        if (!rest().starts_with("(?") && !rest().starts_with("(*")) return copy(1);
        for (const std::string_view kind : kKinds) {
            if (rest().starts_with(kind)) return copy(kind.size());
        }
        refuse(rest().substr(0, 4));
    }

    /// {n}, {n,} and {n,m} repeat; any other brace is a character.
    void braces() {
        size_t end = at_ + 1;
        const auto digits = [&] {
            const size_t begin = end;
            while (end < pattern_.size() && std::isdigit(static_cast<unsigned char>(pattern_[end])))
                ++end;
            return end - begin;
        };
        const size_t low = digits();
        const bool comma = end < pattern_.size() && pattern_[end] == ',';
        if (comma) ++end;
        const size_t high = comma ? digits() : 0;
        const bool closed = end < pattern_.size() && pattern_[end] == '}';
        if (!closed || low + high == 0) {
            result_ += "\\{";
            ++at_;
            return;
        }
        ++end;
        const char next = end < pattern_.size() ? pattern_[end] : '\0';
        // A + repeats once more in Oniguruma, and is possessive in PCRE2; {n}? differs likewise.
        if (next == '+' || (next == '?' && !comma)) {
            refuse(pattern_.substr(at_, end + 1 - at_));
        }
        if (low == 0) {
            result_ += "{0";
            at_ += 1;
        }
        copy(end - at_);
    }

    std::string_view pattern_;
    std::string result_;
    size_t at_ = 0;
};

}  // namespace

std::string pcre2_syntax(std::string_view pattern) {
    return Translation(pattern).run();
}

}  // namespace vocabpipe
