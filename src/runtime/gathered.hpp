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

/// The same for texts of any lengths. Collective.
[[nodiscard]] inline std::vector<std::string> gathered_texts(Communicator& communicator,
                                                             const std::string& mine) {
    std::vector<std::string> all;
    for (const auto& bytes : communicator.all_gather(std::as_bytes(std::span(mine)))) {
        all.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
}

}  // namespace vocabpipe
