// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/document_masks.hpp"

#include "vocabpipe/sample_source.hpp"

#include <cstddef>

namespace vocabpipe {

void ignore_after_ends(std::span<const int32_t> tokens, int32_t end_of_document,
                       std::span<int32_t> labels) {
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] == end_of_document) labels[i] = kIgnoredLabel;
    }
}

void find_document_starts(std::span<const int32_t> tokens, int32_t end_of_document,
                          std::span<int32_t> first_visible) {
    int32_t start = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
        first_visible[i] = start;
        if (tokens[i] == end_of_document) start = static_cast<int32_t>(i) + 1;
    }
}

}  // namespace vocabpipe
