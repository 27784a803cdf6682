// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// Consecutive tokens of a sample; spans of one size n.
struct LabelledTokens {
    std::span<int32_t> tokens;
    std::span<int32_t> labels;
    std::span<float> loss_weights;
};

/// Reads the n tokens from `first` on, as labels the n tokens from first + 1 on, and the loss
/// weights of these labels; without weights in `source`, `to.loss_weights` stays as it is. With
/// vocab_size > 0, InputFileError for an id that is not below it: files may be overwritten after
/// check_tokens().
void read_labelled(const TokenSource& source, int64_t first, int64_t vocab_size,
                   const LabelledTokens& to);

}  // namespace vocabpipe
