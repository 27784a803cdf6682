// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/sample_source.hpp"

#include <cstddef>
#include <cstdint>

namespace vocabpipe::testing {

/// Samples whose tokens say which they are; of up to 99 tokens.
class NumberedSamples : public SampleSource {
public:
    explicit NumberedSamples(int64_t seq_length) : seq_length_(seq_length) {}

    [[nodiscard]] static int32_t token(int64_t sample, int64_t position) {
        return static_cast<int32_t>(100 * sample + position);
    }
    [[nodiscard]] static int64_t sample_of(int32_t token) { return token / 100; }

    [[nodiscard]] int64_t seq_length() const override { return seq_length_; }
    [[nodiscard]] int64_t samples_per_epoch() const override { return 1000; }

protected:
    void fill(int64_t index, Sample& out) const override {
        for (int64_t i = 0; i < seq_length_; ++i) {
            out.tokens[static_cast<size_t>(i)] = token(index, i);
            out.labels[static_cast<size_t>(i)] = token(index, i + 1);
        }
    }

private:
    int64_t seq_length_;
};

}  // namespace vocabpipe::testing
