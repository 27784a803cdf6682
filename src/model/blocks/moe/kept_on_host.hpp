// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/views.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

namespace vocabpipe {

/// Keeps what a forward read back to the host for later passes of the same microbatch; on a device
/// with streams each read costs a wait. The key is the memory of a tensor that the forward saved,
/// so there is one entry per microbatch in flight.
template <typename T>
class KeptOnHost {
public:
    /// Replaces all entries whose memory overlaps that of `at`.
    T& keep(const Tensor& at, T one) {
        const auto bytes = bytes_of<const std::byte>(at);
        const std::byte* const end = bytes.data() + bytes.size();
        auto next = entries_.lower_bound(bytes.data());
        if (next != entries_.begin() && before(bytes.data(), std::prev(next)->second.end)) --next;
        while (next != entries_.end() && before(next->first, end)) next = entries_.erase(next);
        return entries_.emplace_hint(next, bytes.data(), Entry{end, std::move(one)})->second.one;
    }
    /// Throws UsageError where no forward has left an entry.
    [[nodiscard]] T& find(const Tensor& at) {
        const auto found = entries_.find(static_cast<const std::byte*>(at.data));
        if (found != entries_.end()) return found->second.one;
        throw UsageError("experts: a backward of a microbatch that no forward has left");
    }

private:
    struct Entry {
        const std::byte* end = nullptr;
        T one;
    };
    static bool before(const std::byte* a, const std::byte* b) { return std::less<>()(a, b); }

    std::map<const std::byte*, Entry, std::less<>> entries_;  ///< ranges do not overlap
};

}  // namespace vocabpipe
