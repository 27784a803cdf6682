// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace vocabpipe {

/// Range of the numbers that a flag accepts.
struct FlagRange {
    double least = -std::numeric_limits<double>::infinity();
    double most = std::numeric_limits<double>::infinity();
    bool above = false;  ///< excludes `least` itself
    bool below = false;  ///< excludes `most` itself
};
[[nodiscard]] constexpr FlagRange at_least(double least) {
    return {.least = least};
}
[[nodiscard]] constexpr FlagRange between(double least, double most) {
    return {.least = least, .most = most};
}
[[nodiscard]] constexpr FlagRange above(double least) {
    return {.least = least, .above = true};
}
/// At least 0 and below 1.
[[nodiscard]] constexpr FlagRange fraction_below_1() {
    return {.least = 0, .most = 1, .below = true};
}

/// A value with its own text form.
struct FlagText {
    /// Takes as many words as the flag has. Throws UsageError.
    std::function<void(const std::vector<std::string>& words)> set;
    /// The words as a user would type them; "" if there is no value.
    std::function<std::string()> get;
};

/// A value that has a name: `from` parses it and to_string() prints it, as for an enum.
template <typename Name>
[[nodiscard]] FlagText named(Name* value, Name (*from)(std::string_view)) {
    return {.set = [=](const auto& words) { *value = from(words.back()); },
            .get = [=] { return std::string(to_string(*value)); }};
}
template <typename Name>
[[nodiscard]] FlagText named(std::optional<Name>* value, Name (*from)(std::string_view)) {
    return {.set = [=](const auto& words) { *value = from(words.back()); },
            .get = [=] { return std::string(*value ? to_string(**value) : ""); }};
}

/// A size with a unit, such as 500MB.
struct FlagBytes {
    uint64_t* bytes;
};

/// Storage of a flag's value. bool: a switch; a vector: all words that follow.
using FlagValue =
    std::variant<bool*, int*, int64_t*, uint64_t*, float*, double*, std::optional<int>*,
                 std::optional<float>*, std::optional<int64_t>*, std::optional<double>*,
                 std::string*, std::vector<std::string>*, FlagBytes, FlagText>;

/// What the ranks of a run compare about a flag before the first step.
enum class RanksCompare : uint8_t {
    value,     ///< the value: the run does not start if it differs
    presence,  ///< only whether it is given: a path, whose contents are compared when they are read
    nothing,   ///< nothing: other flags contain it, and they are compared
};

/// What a different value changes in a run that continues from a saved step.
enum class Decides : uint8_t {
    samples,  ///< the samples of the steps: the run does not start
    bits,     ///< the weights: saved with every step; a change is logged
    nothing,  ///< neither: where, when and how often something happens
};

/// One row of the table of flags, or a positional argument. Help, checks, config files, completion,
/// the comparison between ranks and the record in a saved step are generated from it. Text is
/// copied; `value` points into options that outlive the row.
struct Flag {
    std::string names;  ///< "--lr", "--chunks,--same-as-chunks", "--yes,!--no"; positional: "FILE"
    FlagValue value = static_cast<bool*>(nullptr);
    std::string help;
    std::string unit = {};  ///< placeholder of the value in help texts; empty: "N", "X" or "TEXT"
    FlagRange range = {};   ///< of numbers
    std::vector<std::string> choices = {};  ///< accepted values; empty: any
    bool free = false;                      ///< accepts others besides the choices, such as files
    /// The default as help tells it; empty: the current value, unless that is `absent`.
    std::string unset = {};
    std::optional<int> absent = {};  ///< number that means "not given", in range or not
    RanksCompare ranks = RanksCompare::value;
    /// Compared and recorded in place of the value, if that follows from other flags.
    std::function<std::string()> meaning = {};
    Decides decides = Decides::bits;
    /// Remedy if another flag follows; empty: how to write a value that begins with a dash.
    std::string without_value = {};
    int words = 1;          ///< of one FlagText
    bool repeats = false;   ///< collects the words of all occurrences instead of the last one
    bool required = false;  ///< must be given, as a positional argument is
    std::vector<std::string> excludes = {};  ///< flags that must not be given with it

    /// The first of its names.
    [[nodiscard]] std::string name() const;
    /// All spellings on a command line: "-b", "--chunks"; none for a positional argument.
    [[nodiscard]] std::vector<std::string> spellings() const;
    [[nodiscard]] bool is_positional() const { return !names.starts_with('-'); }
    [[nodiscard]] bool must_be_given() const { return required || is_positional(); }
    [[nodiscard]] bool is_switch() const { return std::holds_alternative<bool*>(value); }
    /// Takes any number of words, at once or one each time.
    [[nodiscard]] bool is_list() const;
    /// The value in help texts; "" for a switch.
    [[nodiscard]] std::string placeholder() const;
    /// The default in help texts; "" if there is nothing to say.
    [[nodiscard]] std::string default_text() const;
    /// The value as a user would type it, numbers in the shortest form; a switch is "given" or "";
    /// "" if there is none.
    [[nodiscard]] std::string text() const;
    /// Sets the value; numbers and names take one word. Throws UsageError with flag, value and
    /// limit.
    void set(const std::vector<std::string>& words) const;
    /// UsageError if the value is given and out of range.
    void check() const;
};

/// Flags under one heading of the help text.
struct FlagGroup {
    std::string title = {};  ///< empty: with those that every program has
    std::vector<Flag> flags;
};

/// Calls check() on all.
void check_ranges(const std::vector<FlagGroup>& groups);

/// "--flag value" of all flags that the ranks compare; "not given" for no value.
[[nodiscard]] std::vector<std::string> compared_flags(const std::vector<FlagGroup>& groups);
/// The same for the flags that decide the bits of a run.
[[nodiscard]] std::vector<std::string> bit_flags(const std::vector<FlagGroup>& groups);

/// Parses a number of bytes such as 1000, 500MB (10^6) or 2GiB (2^30); none if the text is no such
/// number or does not fit in 64 bits.
[[nodiscard]] std::optional<uint64_t> bytes_from(std::string_view text);

/// The shortest text that reads back as `value`.
[[nodiscard]] std::string shortest_text(double value);
[[nodiscard]] std::string shortest_text(float value);

}  // namespace vocabpipe
