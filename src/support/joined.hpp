// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>

namespace vocabpipe {

/// "a, b, c": the elements of a list of texts or numbers. `text_of`: the text or number of an
/// element, as a function or a member.
template <std::ranges::input_range List, typename TextOf = std::identity>
[[nodiscard]] std::string joined(const List& list, std::string_view between = ", ",
                                 const TextOf& text_of = {}) {
    std::string text;
    std::string_view before;
    for (const auto& element : list) {
        text += before;
        if constexpr (std::is_arithmetic_v<
                          std::decay_t<std::invoke_result_t<const TextOf&, decltype(element)>>>) {
            text += std::to_string(std::invoke(text_of, element));
        } else {
            text += std::invoke(text_of, element);
        }
        before = between;
    }
    return text;
}

}  // namespace vocabpipe
