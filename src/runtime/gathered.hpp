// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace vocabpipe {

/// The values `mine` of all ranks, by rank. Collective.
template <typename T>
[[nodiscard]] std::vector<T> gathered_values(Communicator& communicator, const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all;
    for (const auto& bytes : communicator.all_gather(std::as_bytes(std::span(&mine, 1)))) {
        std::memcpy(&all.emplace_back(), bytes.data(), sizeof(T));
    }
    return all;
}

/// The lists `mine` of all ranks, of any lengths, by rank. Collective.
template <typename T>
[[nodiscard]] std::vector<std::vector<T>> gathered_lists(Communicator& communicator,
                                                         std::span<const T> mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<std::vector<T>> all;
    for (const auto& bytes : communicator.all_gather(std::as_bytes(mine))) {
        std::vector<T>& list = all.emplace_back(bytes.size() / sizeof(T));
        if (!bytes.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
    }
    return all;
}

/// The same for texts. Collective.
[[nodiscard]] inline std::vector<std::string> gathered_texts(Communicator& communicator,
                                                             const std::string& mine) {
    std::vector<std::string> all;
    for (const auto& bytes : communicator.all_gather(std::as_bytes(std::span(mine)))) {
        all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
}

}  // namespace vocabpipe
