// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace vocabpipe {

/// What a text is searched for: a regular expression, or a text. Const functions are safe from
/// several threads.
class Pattern {
public:
    struct Place {
        size_t begin, end;
    };
    /// Memory of the searches of one thread.
    class Memory;

    [[nodiscard]] static Pattern literal(std::string text);
    /// In the syntax of pcre2_syntax(). UsageError if it is not supported or not valid.
    [[nodiscard]] static Pattern regex(std::string_view pattern);
    ~Pattern();
    Pattern(Pattern&&) noexcept;
    Pattern& operator=(Pattern&&) noexcept;

    [[nodiscard]] Memory make_memory() const;
    /// The first place of a match at or after `from` (at most text.size()), which may be empty.
    /// `text` must be valid UTF-8. Error if a regular expression needs too long.
    [[nodiscard]] std::optional<Place> find(std::string_view text, size_t from,
                                            Memory& memory) const;

private:
    struct Code;
    Pattern();
    std::string literal_;
    std::unique_ptr<Code> code_;  ///< null: a literal
};

class Pattern::Memory {
public:
    Memory(Memory&&) noexcept;
    Memory& operator=(Memory&&) noexcept;
    ~Memory();

private:
    friend class Pattern;
    struct Data;
    explicit Memory(std::unique_ptr<Data> data);
    std::unique_ptr<Data> data_;  ///< null: of a literal
};

/// The matches in a text, from left to right. An empty match right behind another match does not
/// count.
class Matches {
public:
    Matches(const Pattern& pattern, std::string_view text, Pattern::Memory& memory)
        : pattern_(pattern), text_(text), memory_(memory) {}
    [[nodiscard]] std::optional<Pattern::Place> next();

private:
    const Pattern& pattern_;
    std::string_view text_;
    Pattern::Memory& memory_;
    size_t from_ = 0;
    std::optional<size_t> last_end_;
};

}  // namespace vocabpipe
