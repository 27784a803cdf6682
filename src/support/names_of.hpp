// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/nearest_name.hpp"
#include "vocabpipe/error.hpp"

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The to_string() of each of them.
template <typename Name>
[[nodiscard]] std::vector<std::string> names_of(std::initializer_list<Name> all) {
    std::vector<std::string> names;
    for (const Name one : all) names.emplace_back(to_string(one));
    return names;
}

/// The one whose to_string() is `name`.
template <typename Name>
[[nodiscard]] std::optional<Name> find_named(std::string_view name,
                                             std::initializer_list<Name> all) {
    for (const Name one : all) {
        if (to_string(one) == name) return one;
    }
    return std::nullopt;
}

/// The one whose to_string() is `name`. Throws UsageError with all names: "FLAG NAME: must be one
/// of ...".
template <typename Name>
[[nodiscard]] Name value_named(std::string_view flag, std::string_view name,
                               std::initializer_list<Name> all) {
    if (const std::optional<Name> found = find_named(name, all)) return *found;
    std::vector<std::string_view> known;
    for (const Name one : all) known.push_back(to_string(one));
    throw UsageError(std::string(flag) + " " + std::string(name) + ": " +
                     must_be_one_of(known, name));
}

}  // namespace vocabpipe
