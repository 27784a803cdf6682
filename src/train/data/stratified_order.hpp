// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "vocabpipe/sample_order.hpp"

namespace vocabpipe {

/// The order of samples of several kinds. As with SampleOrder, every epoch visits each sample once,
/// in an order drawn from (seed, epoch), and needs neither memory nor state. Besides, any few
/// consecutive samples are of the kinds in nearly their shares, so that all steps are alike.
///
/// Steps of the golden ratio through all samples, which stand one kind after the other, are even
/// (three-distance theorem); which sample of its kind is meant is shuffled.
class StratifiedOrder {
public:
    /// `counts`: samples of every kind, each at least 1; UsageError if there are more than 3 x 10^9
    /// together. One kind has the order of SampleOrder.
    StratifiedOrder(const std::vector<int64_t>& counts, uint64_t seed, bool shuffle = true);

    /// The sample at position `index` >= 0 counted over all epochs: samples of a kind have the
    /// numbers behind those of the kinds before it. Without `shuffle` every epoch is 0, 1, 2, ...
    [[nodiscard]] int64_t operator()(int64_t index) const;

private:
    std::vector<int64_t> first_;  ///< [kind] number of its first sample, and of all
    std::vector<SampleOrder> within_;
    uint64_t seed_;
    bool shuffle_;
    int64_t stride_;  ///< no common divisor with the number of samples
};

}  // namespace vocabpipe
