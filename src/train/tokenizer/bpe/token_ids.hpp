// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace vocabpipe {

/// Ids of tokens.
class TokenIds {
public:
    void reserve(size_t count) { ids_.reserve(count); }
    /// False: the token has an id already, which stays.
    bool add(std::string_view token, int32_t id) { return ids_.emplace(token, id).second; }
    /// -1: none.
    [[nodiscard]] int32_t find(std::string_view token) const {
        const auto found = ids_.find(token);
        return found == ids_.end() ? -1 : found->second;
    }
    [[nodiscard]] size_t size() const { return ids_.size(); }
    /// Calls `use(token, id)` for each, in no order.
    template <typename Use>
    void for_each(const Use& use) const {
        for (const auto& [token, id] : ids_) use(token, id);
    }

private:
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };
    std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace vocabpipe
