// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace vocabpipe {

/// The order of samples: every epoch visits each of `samples_per_epoch` samples once, in an order
/// drawn from (seed, epoch). A keyed permutation computed on demand: no memory, no state, the same
/// on every rank whatever their number.
class SampleOrder {
public:
    /// `samples_per_epoch` is at least 1; without `shuffle` every epoch is 0, 1, 2, ...
    SampleOrder(int64_t samples_per_epoch, uint64_t seed, bool shuffle = true);

    /// The sample, in [0, samples_per_epoch), at position `index` >= 0 counted over all epochs.
    [[nodiscard]] int64_t operator()(int64_t index) const;

private:
    int64_t samples_;
    uint64_t seed_;
    bool shuffle_;
    int half_bits_ = 1;  // the permutation works on 2 * half_bits_ bits
};

/// A seed for the `number`-th of several data sets of a run, so that sets of equal size differ in
/// order.
[[nodiscard]] uint64_t derived_seed(uint64_t seed, uint64_t number);

}  // namespace vocabpipe
