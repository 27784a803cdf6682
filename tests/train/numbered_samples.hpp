// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/sample_source.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

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
    void sample(int64_t index, std::span<int32_t> tokens_and_next) const override {
        int64_t position = 0;
        std::ranges::generate(tokens_and_next, [&] { return token(index, position++); });
    }

private:
    int64_t seq_length_;
};

}  // namespace vocabpipe::testing
