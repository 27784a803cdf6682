// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/views.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>

namespace vocabpipe {

/// What the backward of a norm or of attention reads of every row, fp32 (N, a few).
using Statistics = Tensor;

/// Tokens of a microbatch: those of the rank's own rows of the residual stream, and all.
struct TokenCounts {
    int64_t own = 0;  ///< N/t
    int64_t all = 0;  ///< N
};

/// Cuts memory into tensors that have a row for each token of a microbatch: its own tokens, or all.
class TokenViews {
public:
    /// `memory` must outlive it; `dtype`: of the run.
    TokenViews(Views& memory, TokenCounts tokens, DType dtype)
        : memory_(&memory), tokens_(tokens), dtype_(dtype) {}
    /// Of a rank that has the stage alone.
    TokenViews(Views& memory, int64_t tokens, DType dtype)
        : TokenViews(memory, {.own = tokens, .all = tokens}, dtype) {}

    /// From the same memory, with rows for all tokens.
    [[nodiscard]] TokenViews all() const {
        return {*memory_, {.own = tokens_.all, .all = tokens_.all}, dtype_};
    }
    /// N/t.
    [[nodiscard]] int64_t own() const { return tokens_.own; }
    /// (count, cols) in the run's type, whatever the tokens are.
    Tensor rows(int64_t count, int64_t cols) { return memory_->take(count, cols, dtype_); }
    /// (N/t, cols) in the run's type.
    Tensor take(int64_t cols) { return memory_->take(tokens_.own, cols, dtype_); }
    /// (N/t, cols) fp32.
    Statistics statistics(int64_t cols) { return memory_->take(tokens_.own, cols, DType::fp32); }
    /// (1, count) fp32, of the microbatch as a whole.
    Tensor numbers(int64_t count) { return memory_->take(1, count, DType::fp32); }

private:
    Views* memory_;
    TokenCounts tokens_;
    DType dtype_;
};

/// Where F puts what the backward reads. A block decides for each of its tensors how it is to be
/// recomputed; the stage decides what memory that is (recompute.hpp).
struct SavedViews {
    TokenViews costly;  ///< made again by a full recomputation alone
    TokenViews cheap;   ///< made again by a selective one, too

    [[nodiscard]] SavedViews all() const { return {.costly = costly.all(), .cheap = cheap.all()}; }
};

}  // namespace vocabpipe
