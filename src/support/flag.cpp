// SPDX-License-Identifier: Apache-2.0
#include "src/support/flag.hpp"

#include "src/support/joined.hpp"
#include "src/support/nearest_name.hpp"
#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <system_error>
#include <type_traits>

namespace vocabpipe {

namespace {

template <typename... Of>
struct Overloaded : Of... {
    using Of::operator()...;
};
template <typename... Of>
Overloaded(Of...) -> Overloaded<Of...>;

template <typename T>
concept Number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

template <typename T>
std::string shortest(T value) {
    std::array<char, 64> text{};
    char* const begin = text.data();
    if constexpr (std::is_floating_point_v<T>) {  // 0.0003 rather than 3e-04
        return {begin,
                std::to_chars(begin, begin + text.size(), value, std::chars_format::general).ptr};
    } else {
        return {begin, std::to_chars(begin, begin + text.size(), value).ptr};
    }
}

[[noreturn]] void refuse(const Flag& flag, const std::string& value, const std::string& why) {
    throw UsageError(flag.name() + " " + (value.empty() ? "\"\"" : value) + ": " + why);
}

/// The "must be ..." of a number outside the range.
std::string must_be(const FlagRange& range, bool too_small, bool whole, const std::string& unit) {
    if (whole) {
        return too_small ? "must be at least " + shortest(static_cast<int64_t>(range.least))
                         : "must be at most " + shortest(static_cast<int64_t>(range.most));
    }
    const std::string least = shortest(range.least);
    const std::string most = shortest(range.most);
    if (range.below) return "must be at least " + least + " and below " + most;
    if (std::isfinite(range.most)) return "must be between " + least + " and " + most;
    const bool measured = unit == "SECONDS" || unit == "MINUTES";
    std::string of = measured ? " of " + unit : "";
    std::ranges::transform(of, of.begin(), [](unsigned char c) { return std::tolower(c); });
    if (range.above) {
        return range.least == 0 ? "must be a finite positive number" + of
                                : "must be a finite number" + of + " above " + least;
    }
    return "must be a finite number" + of + ", at least " + least;
}

template <typename T>
void check_number(const Flag& flag, T number) {
    const auto value = static_cast<double>(number);
    const FlagRange& range = flag.range;
    // Written so that NaN fails as well.
    const bool large_enough = range.above ? value > range.least : value >= range.least;
    const bool small_enough = range.below ? value < range.most : value <= range.most;
    if (large_enough && small_enough && std::isfinite(value)) return;
    refuse(flag, shortest(number), must_be(range, !large_enough, std::is_integral_v<T>, flag.unit));
}

template <typename T>
const char* name_of_numbers() {
    return std::is_floating_point_v<T> ? "X" : "N";
}

/// Other parsers take -1 for a large unsigned number and cut off numbers that are too large.
template <typename T>
T number_from(const Flag& flag, const std::string& word) {
    using Widest = std::conditional_t<std::is_floating_point_v<T>, T,
                                      std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
    const std::optional<Widest> value = parse_flag_number<Widest>(word);
    if (!value) {
        refuse(flag, word,
               std::string("is not a number, or is out of range; use a ") +
                   (std::is_floating_point_v<T> ? "finite decimal number"
                    : std::is_signed_v<T>       ? "decimal integer"
                                                : "decimal integer of at least 0"));
    }
    check_number(flag, *value);
    if constexpr (std::is_integral_v<T>) {
        if (*value > Widest{std::numeric_limits<T>::max()}) {
            refuse(flag, word, "must be at most " + shortest(std::numeric_limits<T>::max()));
        }
        if (*value < Widest{std::numeric_limits<T>::min()}) {
            refuse(flag, word, "must be at least " + shortest(std::numeric_limits<T>::min()));
        }
    }
    return static_cast<T>(*value);
}

void check_choice(const Flag& flag, const std::string& word) {
    if (flag.choices.empty() || flag.free) return;
    if (std::ranges::find(flag.choices, word) != flag.choices.end()) return;
    const std::vector<std::string_view> known(flag.choices.begin(), flag.choices.end());
    refuse(flag, word, must_be_one_of(known, word));
}

std::vector<std::string> lines_of(const std::vector<FlagGroup>& groups,
                                  const std::function<bool(const Flag&)>& counts) {
    std::vector<std::string> lines;
    for (const FlagGroup& group : groups) {
        for (const Flag& flag : group.flags) {
            if (flag.ranks == RanksCompare::nothing || !counts(flag)) continue;
            const std::string text = flag.meaning ? flag.meaning() : flag.text();
            lines.push_back(flag.name() + " " +
                            (text.empty()                           ? "not given"
                             : flag.ranks == RanksCompare::presence ? "given"
                                                                    : text));
        }
    }
    return lines;
}

}  // namespace

std::string Flag::name() const {
    return names.substr(0, names.find(','));
}

std::vector<std::string> Flag::spellings() const {
    std::vector<std::string> all;
    if (is_positional()) return all;
    std::istringstream in(names);
    for (std::string name; std::getline(in, name, ',');) {
        all.push_back(name.substr(name.find_first_not_of('!')));
    }
    return all;
}

bool Flag::is_list() const {
    return repeats || std::holds_alternative<std::vector<std::string>*>(value);
}

std::string Flag::placeholder() const {
    if (is_switch() || !unit.empty()) return unit;
    return std::visit(Overloaded{
                          [](const auto&) { return "TEXT"; },
                          []<typename T>(std::optional<T>*) { return name_of_numbers<T>(); },
                          []<Number T>(T*) { return name_of_numbers<T>(); },
                      },
                      value);
}

std::string Flag::default_text() const {
    if (is_switch() || must_be_given() || !unset.empty()) return unset;
    const std::string now = text();
    return absent && now == std::to_string(*absent) ? "" : now;
}

std::string Flag::text() const {
    return std::visit(Overloaded{
                          [](bool* given) { return std::string(*given ? "given" : ""); },
                          [](std::string* text) { return *text; },
                          [](std::vector<std::string>* words) { return joined(*words, " "); },
                          [](const FlagBytes& size) { return shortest(*size.bytes); },
                          [](const FlagText& form) { return form.get(); },
                          []<typename T>(std::optional<T>* number) {
                              return *number ? shortest(**number) : std::string();
                          },
                          []<Number T>(T* number) { return shortest(*number); },
                      },
                      value);
}

void Flag::set(const std::vector<std::string>& given) const {
    for (const std::string& word : given) {
        if (word.empty()) refuse(*this, word, "must not be empty");
        check_choice(*this, word);
    }
    const std::string& word = given.back();
    std::visit(
        Overloaded{
            [](bool* switched) { *switched = true; },
            [&](std::string* text) { *text = word; },
            [&](std::vector<std::string>* all) { *all = given; },
            [&](const FlagBytes& size) {
                const std::optional<uint64_t> bytes = bytes_from(word);
                if (!bytes || *bytes == 0) {
                    refuse(*this, word, "must be a size above 0, such as 500MB or 2GiB");
                }
                *size.bytes = *bytes;
            },
            [&](const FlagText& form) { form.set(given); },
            [&]<typename T>(std::optional<T>* number) { *number = number_from<T>(*this, word); },
            [&]<Number T>(T* number) { *number = number_from<T>(*this, word); },
        },
        value);
}

void Flag::check() const {
    std::visit(Overloaded{
                   [](const auto&) {},
                   [&]<typename T>(std::optional<T>* number) {
                       if (*number) check_number(*this, **number);
                   },
                   [&]<Number T>(T* number) {
                       if (absent && static_cast<double>(*number) == *absent) return;
                       check_number(*this, *number);
                   },
               },
               value);
}

void check_ranges(const std::vector<FlagGroup>& groups) {
    for (const FlagGroup& group : groups) {
        for (const Flag& flag : group.flags) flag.check();
    }
}

std::vector<std::string> compared_flags(const std::vector<FlagGroup>& groups) {
    return lines_of(groups, [](const Flag&) { return true; });
}

std::vector<std::string> bit_flags(const std::vector<FlagGroup>& groups) {
    return lines_of(groups, [](const Flag& flag) { return flag.decides != Decides::nothing; });
}

std::optional<uint64_t> bytes_from(std::string_view text) {
    constexpr std::string_view kPrefixes = "kmgtpe";
    uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
    if (error != std::errc()) return std::nullopt;
    std::string unit(end, static_cast<size_t>(text.data() + text.size() - end));
    std::ranges::transform(unit, unit.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (unit.starts_with(' ')) unit.erase(0, 1);
    size_t times = 0;
    const size_t prefix = unit.empty() ? std::string::npos : kPrefixes.find(unit.front());
    if (prefix != std::string::npos) {
        times = prefix + 1;
        unit.erase(0, 1);
    }
    const bool binary = times > 0 && unit.starts_with('i');
    if (binary) unit.erase(0, 1);
    if (!unit.empty() && unit != "b") return std::nullopt;
    for (const uint64_t factor = binary ? 1024 : 1000; times > 0; --times) {
        if (bytes > std::numeric_limits<uint64_t>::max() / factor) return std::nullopt;
        bytes *= factor;
    }
    return bytes;
}

std::string shortest_text(double value) {
    return shortest(value);
}

std::string shortest_text(float value) {
    return shortest(value);
}

}  // namespace vocabpipe
