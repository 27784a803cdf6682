// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <span>

namespace vocabpipe {

/// The order of the rows of X where the last stage predicts P tokens and t tensor ranks share it. A
/// microbatch has its labels by depth: N of the next token, then N of each one after it. X has its
/// rows by tensor rank: P N/t of the first one, by depth, then those of the next. This class brings
/// labels and their gradients from the one order into the other, and losses back, so that they are
/// added up as without tensor ranks. With P = 1 or t = 1 both orders are one, and it does nothing.
class PredictedRows {
public:
    /// `tokens`: N; `predicted`: P; `tensor`: t, which divides N.
    PredictedRows(Device& device, int64_t tokens, int predicted, int tensor);

    /// Before every step: has room for its microbatches.
    void begin_step(int microbatches);
    /// In S: reorders the labels of the microbatch and their gradients for ordered().
    void put(Context& ctx, const Microbatch& microbatch);
    /// The microbatch with labels and gradients in the order of X.
    [[nodiscard]] Microbatch ordered(const Microbatch& microbatch) const;
    /// (P N), by depth, of `values` in the order of X; valid until the next call.
    [[nodiscard]] std::span<const float> by_depth(Context& ctx, const Microbatch& microbatch,
                                                  std::span<const float> values) const;

private:
    /// An evaluation has only labels of the next token.
    [[nodiscard]] bool reorders(const Microbatch& microbatch) const {
        return rows_ > 0 && std::ssize(microbatch.labels) > microbatch.size();
    }
    /// Calls copy(row by depth, row of X, rows) for each range that is one in both orders.
    template <typename Copy>
    void each_range(const Copy& copy) const;

    Device& device_;
    int64_t rows_;  ///< P N; 0: both orders are one
    int64_t predicted_;
    int64_t tensor_;
    DeviceMemory labels_;     ///< (microbatches, P N)
    DeviceMemory gradients_;  ///< (microbatches, P N)
    DeviceMemory by_depth_;   ///< (P N)
};

}  // namespace vocabpipe
