// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace vocabpipe {

/// The training samples of a run by number, counted over all epochs without end. A number is the
/// same sample in every run and on every rank. Safe from several threads.
class SampleSource {
public:
    virtual ~SampleSource() = default;

    /// Tokens of a sample that have a label.
    [[nodiscard]] virtual int64_t seq_length() const = 0;

    /// Number of different samples.
    [[nodiscard]] virtual int64_t samples_per_epoch() const = 0;

    /// Copies sample `index` >= 0 to `tokens_and_next`, which has seq_length() + 1 elements: inputs
    /// are the first and labels the last seq_length() of them.
    virtual void sample(int64_t index, std::span<int32_t> tokens_and_next) const = 0;
};

}  // namespace vocabpipe
