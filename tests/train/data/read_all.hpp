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

}  // namespace vocabpipe::testing
