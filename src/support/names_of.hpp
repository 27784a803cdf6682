// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace vocabpipe {

/// The to_string() of each of them.
template <typename Name>
[[nodiscard]] std::vector<std::string> names_of(std::initializer_list<Name> all) {
    std::vector<std::string> names;
    for (const Name one : all) names.emplace_back(to_string(one));
    return names;
}

}  // namespace vocabpipe
