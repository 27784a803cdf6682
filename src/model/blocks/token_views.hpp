// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/views.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>

namespace vocabpipe {

/// Numbers per row that the backward of a norm or of attention reads, fp32 (N, a few).
using Statistics = Tensor;

/// Numbers of tokens of a microbatch: in the rank's own rows of the residual stream, and in all.
struct TokenCounts {
    int64_t own = 0;  ///< N/t
    int64_t all = 0;  ///< N
};

/// Cuts memory into tensors with a row per token of a microbatch: the rank's own tokens, or all.
class TokenViews {
public:
    /// `memory` must outlive this object; `dtype`: the run's.
    TokenViews(Views& memory, TokenCounts tokens, DType dtype)
        : memory_(&memory), tokens_(tokens), dtype_(dtype) {}
    /// For a rank that does not share the stage.
    TokenViews(Views& memory, int64_t tokens, DType dtype)
        : TokenViews(memory, {.own = tokens, .all = tokens}, dtype) {}

    /// The same memory, with rows for all tokens.
    [[nodiscard]] TokenViews all() const {
        return {*memory_, {.own = tokens_.all, .all = tokens_.all}, dtype_};
    }
    /// N/t.
    [[nodiscard]] int64_t own() const { return tokens_.own; }
    /// (count, cols) in the run's type, independent of the tokens.
    Tensor rows(int64_t count, int64_t cols) { return memory_->take(count, cols, dtype_); }
    /// (N/t, cols) in the run's type.
    Tensor take(int64_t cols) { return memory_->take(tokens_.own, cols, dtype_); }
    /// (N/t, cols) fp32.
    Statistics statistics(int64_t cols) { return memory_->take(tokens_.own, cols, DType::fp32); }
    /// (1, count) fp32, for the whole microbatch.
    Tensor numbers(int64_t count) { return memory_->take(1, count, DType::fp32); }

private:
    Views* memory_;
    TokenCounts tokens_;
    DType dtype_;
};

/// Memory for what F leaves to the backward. A block decides whether each of its tensors is costly
/// or cheap to recompute; the stage decides which memory each kind gets (recompute.hpp).
struct SavedViews {
    TokenViews costly;  ///< recomputed only by a full recomputation
    TokenViews cheap;   ///< recomputed also by a selective one

    [[nodiscard]] SavedViews all() const { return {.costly = costly.all(), .cheap = cheap.all()}; }
};

}  // namespace vocabpipe
