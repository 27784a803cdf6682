// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/token_source.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::testing {

[[nodiscard]] inline std::vector<int32_t> read_all(const TokenSource& source) {
    std::vector<int32_t> tokens(static_cast<size_t>(source.size()));
    source.read(0, tokens);
    return tokens;
}

[[nodiscard]] inline std::vector<float> read_all_weights(const TokenSource& source) {
    std::vector<float> weights(static_cast<size_t>(source.size()));
    source.read_loss_weights(0, weights);
    return weights;
}

}  // namespace vocabpipe::testing
