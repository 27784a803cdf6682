// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace vocabpipe {

/// Decides which data set gives each sample of a blend. Megatron's rule (build_blending_indices):
/// sample n comes from the data set that is furthest behind its share of n samples, the first one
/// in a tie. After any number of samples every set has its share to within a few samples.
///
/// Keeps no table: the place of the next sample follows from the counts that each set has given. A
/// later sample costs a pass over the weights for each sample in between, and so does an earlier
/// one: from at most 2^17 samples before the latest, or from 0 if it is before that.
class BlendOrder {
public:
    /// At least one weight; all positive, with sum 1.
    explicit BlendOrder(std::vector<double> weights);

    /// A sample of one of the sets, counted over the set's epochs.
    struct Place {
        size_t dataset = 0;
        int64_t sample = 0;
        friend bool operator==(const Place&, const Place&) = default;
    };

    /// The place of sample `index` >= 0 of the blend. Safe from several threads.
    [[nodiscard]] Place operator()(int64_t index) const;

private:
    [[nodiscard]] size_t furthest_behind() const;

    std::vector<double> weights_;
    mutable std::mutex mutex_;  ///< of the members below
    struct Counts {
        int64_t samples = 0;         ///< that are given
        std::vector<int64_t> given;  ///< of these, by each set
    };
    mutable Counts now_;
    /// Earlier counts to go on from: a step asks for lengths first, and then for the same samples.
    mutable Counts earlier_, earliest_;
};

}  // namespace vocabpipe
