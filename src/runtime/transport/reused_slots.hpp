// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace vocabpipe {

/// A transport's records of open messages, by number. Slots never move, so peers and libraries may
/// keep pointers to them, and freed slots are reused.
template <typename T>
class ReusedSlots {
public:
    /// A free slot, as its last user left it.
    [[nodiscard]] uint32_t take() {
        if (free_.empty()) {
            slots_.emplace_back();
            return static_cast<uint32_t>(slots_.size() - 1);
        }
        const uint32_t slot = free_.back();
        free_.pop_back();
        return slot;
    }
    /// The same, with a new value.
    [[nodiscard]] uint32_t take_new() {
        const uint32_t slot = take();
        slots_[slot] = T{};
        return slot;
    }
    void give_back(uint32_t slot) { free_.push_back(slot); }

    [[nodiscard]] T& operator[](uint32_t slot) { return slots_[slot]; }
    /// Iterates over all slots, including free ones.
    [[nodiscard]] auto begin() { return slots_.begin(); }
    [[nodiscard]] auto end() { return slots_.end(); }

private:
    std::deque<T> slots_;
    std::vector<uint32_t> free_;
};

}  // namespace vocabpipe
