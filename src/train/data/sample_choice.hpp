// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe {

/// Some of the training samples of a run's data, in ascending order of their numbers. Samples are
/// numbered in stream order; in a blend, data set after data set. Safe from several threads.
class SampleChoice {
public:
    virtual ~SampleChoice() = default;

    /// The first position whose sample is at least `sample`; the number of positions if there is
    /// none.
    [[nodiscard]] virtual int64_t position_of(int64_t sample) const = 0;
    /// The chosen sample at `position`.
    [[nodiscard]] virtual int64_t sample(int64_t position) const = 0;
};

}  // namespace vocabpipe
