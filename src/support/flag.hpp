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

/// Numbers that a flag may have, from `least` to `most`.
struct FlagRange {
    double least = -std::numeric_limits<double>::infinity();
    double most = std::numeric_limits<double>::infinity();
    bool above = false;  ///< `least` itself is not among them
    bool below = false;  ///< `most` itself is not among them
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

/// A value with a form of its own.
struct FlagText {
    /// Of as many words as the flag takes. Throws UsageError.
    std::function<void(const std::vector<std::string>& words)> set;
    /// As it would be given; "" where it is not.
    std::function<std::string()> get;
};

/// One of the names that `from` knows and to_string() gives back, such as those of an enum.
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

/// Where a flag's value is kept. bool: a switch; a vector: all words that follow.
using FlagValue =
    std::variant<bool*, int*, int64_t*, uint64_t*, float*, double*, std::optional<int>*,
                 std::optional<float>*, std::optional<int64_t>*, std::optional<double>*,
                 std::string*, std::vector<std::string>*, FlagBytes, FlagText>;

/// What the ranks of a run compare of a flag before the first step.
enum class RanksCompare : uint8_t {
    value,     ///< the value: started with two of them a run does not start
    presence,  ///< whether it is given: a path, whose contents are compared when they are read
    nothing,   ///< other flags hold what it says, and they are compared
};

/// What another value changes when a run goes on from a saved step.
enum class Decides : uint8_t {
    samples,  ///< what steps read: such a run does not go on
    bits,     ///< the weights: saved with every step, and a change is told
    nothing,  ///< where, when and how often something happens
};

/// One row of the table of flags, or a positional argument. Help, checks, config files, completion,
/// the comparison between ranks and what a saved step records are made of it. Text is copied;
/// `value` points into options that outlive the row.
struct Flag {
    std::string names;  ///< "--lr", "--chunks,--same-as-chunks", "--yes,!--no"; positional: "FILE"
    FlagValue value = static_cast<bool*>(nullptr);
    std::string help;
    std::string unit = {};  ///< what stands for the value in help texts; empty: "N", "X" or "TEXT"
    FlagRange range = {};   ///< of numbers
    std::vector<std::string> choices = {};  ///< all there are; empty: anything
    bool free = false;                      ///< there are others beside the choices, files for one
    /// What holds where it is not given; empty: the value that it has now, unless that is `absent`.
    std::string unset = {};
    std::optional<int> absent = {};  ///< the number that stands for "not given", in range or not
    RanksCompare ranks = RanksCompare::value;
    /// What is compared and recorded in place of the value, where that follows from other flags.
    std::function<std::string()> meaning = {};
    Decides decides = Decides::bits;
    /// What to do where another flag follows; empty: how a value looks that begins as a flag does.
    std::string without_value = {};
    int words = 1;                           ///< of one FlagText
    bool repeats = false;                    ///< all times count, not the last one
    bool required = false;                   ///< must be given, as a positional argument is
    std::vector<std::string> excludes = {};  ///< names of flags that are not given with it

    /// The first of its names.
    [[nodiscard]] std::string name() const;
    /// All that a command line may have for it: "-b", "--chunks"; none of a positional argument.
    [[nodiscard]] std::vector<std::string> spellings() const;
    [[nodiscard]] bool is_positional() const { return !names.starts_with('-'); }
    [[nodiscard]] bool must_be_given() const { return required || is_positional(); }
    [[nodiscard]] bool is_switch() const { return std::holds_alternative<bool*>(value); }
    /// Takes any number of words, at once or one each time.
    [[nodiscard]] bool is_list() const;
    /// What stands for the value in help texts; "" of a switch.
    [[nodiscard]] std::string placeholder() const;
    /// What holds where it is not given, for help texts; "" where there is nothing to say.
    [[nodiscard]] std::string default_text() const;
    /// The value as it would be given, numbers in the shortest form that means the same; a switch
    /// is "given" or not; "" where there is none.
    [[nodiscard]] std::string text() const;
    /// Takes a value, of a number or name one word. Throws UsageError with flag, value and limit.
    void set(const std::vector<std::string>& words) const;
    /// Throws UsageError where the value is given and outside of the range.
    void check() const;
};

/// Rows under one heading of the help text.
struct FlagGroup {
    std::string title = {};  ///< empty: with those that every program has
    std::vector<Flag> flags;
};

/// check() of all.
void check_ranges(const std::vector<FlagGroup>& groups);

/// "--flag value" of all that the ranks compare, "not given" for none.
[[nodiscard]] std::vector<std::string> compared_flags(const std::vector<FlagGroup>& groups);
/// The same of those that decide the bits of a run.
[[nodiscard]] std::vector<std::string> bit_flags(const std::vector<FlagGroup>& groups);

/// A number of bytes such as 1000, 500MB (10^6) or 2GiB (2^30); none where it is no such text, or
/// beyond 64 bits.
[[nodiscard]] std::optional<uint64_t> bytes_from(std::string_view text);

/// The shortest text that reads back as `value`.
[[nodiscard]] std::string shortest_text(double value);
[[nodiscard]] std::string shortest_text(float value);

}  // namespace vocabpipe
