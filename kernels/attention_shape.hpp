// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe::kernels {

/// Token rows are grouped by sequence: row n is token n % seq_length of sequence n / seq_length.
struct AttentionShape {
    int64_t sequences = 0;
    int64_t seq_length = 0;
    int64_t heads = 0;
    int64_t head_size = 0;

    [[nodiscard]] int64_t tokens() const { return sequences * seq_length; }  ///< N
    [[nodiscard]] int64_t hidden() const { return heads * head_size; }       ///< h
};

}  // namespace vocabpipe::kernels
