// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/sample_source.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::testing {

/// The tokens of a sample, and the label of the last one.
[[nodiscard]] inline std::vector<int32_t> sample_tokens(const SampleSource& samples,
                                                        int64_t index) {
    Sample sample(samples.seq_length());
    samples.sample(index, sample);
    sample.tokens.push_back(sample.labels.back());
    return sample.tokens;
}

}  // namespace vocabpipe::testing
