// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>

namespace vocabpipe::testing {

/// VOCABPIPE_PROPERTY_CASES, or `usual`, of which sanitizers run a fifth: they are slower.
inline int number_of_cases(int usual) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    usual /= 5;
#endif
    const char* text = std::getenv("VOCABPIPE_PROPERTY_CASES");
    return text == nullptr ? usual : std::max(1, std::atoi(text));
}

}  // namespace vocabpipe::testing
