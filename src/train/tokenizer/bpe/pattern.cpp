// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/pattern.hpp"

#include "src/train/tokenizer/bpe/pattern_syntax.hpp"
#include "src/train/tokenizer/bpe/utf8.hpp"
#include "vocabpipe/error.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

namespace vocabpipe {

namespace {

struct FreeCode {
    void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
};
struct FreeCompileContext {
    void operator()(pcre2_compile_context* c) const noexcept { pcre2_compile_context_free(c); }
};
struct FreeMatchData {
    void operator()(pcre2_match_data* data) const noexcept { pcre2_match_data_free(data); }
};

std::string pcre2_message(int error) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Pattern::Code {
    std::unique_ptr<pcre2_code, FreeCode> code;
};

struct Pattern::Memory::Data {
    std::unique_ptr<pcre2_match_data, FreeMatchData> match;
};

Pattern::Pattern() = default;
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::Memory::Memory(std::unique_ptr<Data> data) : data_(std::move(data)) {}
Pattern::Memory::Memory(Memory&&) noexcept = default;
Pattern::Memory& Pattern::Memory::operator=(Memory&&) noexcept = default;
Pattern::Memory::~Memory() = default;

Pattern Pattern::literal(std::string text) {
    Pattern result;
    result.literal_ = std::move(text);
    return result;
}

Pattern Pattern::regex(std::string_view pattern) {
    const std::string translated = pcre2_syntax(pattern);
    const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
        pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // as Oniguruma, for . ^ and $
    int error = 0;
    size_t at = 0;
    Pattern result;
    result.code_ = std::make_unique<Code>();
    result.code_->code.reset(pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
        PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get()));
    if (!result.code_->code) {
        throw UsageError("the pattern is not a regular expression that is supported (" +
                         pcre2_message(error) + ")");
    }
    // Where memory may not be executable there is no JIT; matches are the same and take longer.
    (void)pcre2_jit_compile(result.code_->code.get(), PCRE2_JIT_COMPLETE);
    return result;
}

Pattern::Memory Pattern::make_memory() const {
    if (!code_) return Memory(nullptr);
    auto data = std::make_unique<Memory::Data>();
    data->match.reset(pcre2_match_data_create_from_pattern(code_->code.get(), nullptr));
    return Memory(std::move(data));
}

std::optional<Pattern::Place> Pattern::find(std::string_view text, size_t from,
                                            Memory& memory) const {
    if (!code_) {
        const size_t begin = text.find(literal_, from);
        if (begin == std::string_view::npos) return {};
        return Place{begin, begin + literal_.size()};
    }
    pcre2_match_data* const match = memory.data_->match.get();
    const int found = pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), from, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (found == PCRE2_ERROR_NOMATCH) return {};
    if (found < 0) {
        throw Error(ExitCode::failed, "the tokenizer's pattern cannot be matched with this text: " +
                                          pcre2_message(found));
    }
    const size_t* const ends = pcre2_get_ovector_pointer(match);
    return Place{ends[0], ends[1]};
}

std::optional<Pattern::Place> Matches::next() {
    while (from_ <= text_.size()) {
        const auto found = pattern_.find(text_, from_, memory_);
        if (!found) {
            from_ = text_.size() + 1;
            return {};
        }
        if (found->begin == found->end && last_end_ == found->end) {
            from_ += from_ < text_.size() ? valid_character_bytes(text_[from_]) : 1;
            continue;
        }
        from_ = found->end;
        last_end_ = found->end;
        return found;
    }
    return {};
}

}  // namespace vocabpipe
