// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A dense number for every position in the global order that occurs in the programs; the
/// participants of one communication share it. Positions from lowering are dense already.
class Meetings {
public:
    explicit Meetings(const std::vector<Program>& programs) {
        size_t actions = 0;
        uint32_t largest = 0;
        for (const Program& program : programs) {
            actions += program.actions.size();
            for (const Action& action : program.actions) largest = std::max(largest, action.order);
        }
        if (largest < 4 * actions + 64) {
            count_ = size_t{largest} + 1;
            return;
        }
        orders_.reserve(actions);
        for (const Program& program : programs) {
            for (const Action& action : program.actions) orders_.push_back(action.order);
        }
        std::sort(orders_.begin(), orders_.end());
        orders_.erase(std::unique(orders_.begin(), orders_.end()), orders_.end());
        count_ = orders_.size();
    }

    [[nodiscard]] size_t count() const { return count_; }
    [[nodiscard]] uint32_t of(const Action& action) const {
        if (orders_.empty()) return action.order;
        return static_cast<uint32_t>(
            std::lower_bound(orders_.begin(), orders_.end(), action.order) - orders_.begin());
    }

private:
    size_t count_ = 0;
    std::vector<uint32_t> orders_;  ///< empty: every position stands for itself
};

}  // namespace vocabpipe
