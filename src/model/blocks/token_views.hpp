// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/views.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>

namespace vocabpipe {

/// What the backward of a norm or of attention reads of every row, fp32 (N, a few).
using Statistics = Tensor;

/// Cuts memory into tensors that have a row for each of the N tokens of a microbatch.
class TokenViews {
public:
    /// `memory` must outlive it; `dtype`: of the run.
    TokenViews(Views& memory, int64_t tokens, DType dtype)
        : memory_(&memory), tokens_(tokens), dtype_(dtype) {}

    /// (N, cols) in the run's type.
    Tensor take(int64_t cols) { return memory_->take(tokens_, cols, dtype_); }
    /// (N, cols) fp32.
    Statistics statistics(int64_t cols) { return memory_->take(tokens_, cols, DType::fp32); }
    /// (1, count) fp32, of the microbatch as a whole.
    Tensor numbers(int64_t count) { return memory_->take(1, count, DType::fp32); }

private:
    Views* memory_;
    int64_t tokens_;
    DType dtype_;
};

/// Where F puts what the backward reads. A block decides for each of its tensors how it is to be
/// recomputed; the stage decides what memory that is (recompute.hpp).
struct SavedViews {
    TokenViews costly;  ///< made again by a full recomputation alone
    TokenViews cheap;   ///< made again by a selective one, too
};

}  // namespace vocabpipe
