// SPDX-License-Identifier: Apache-2.0
// What the operators of generation are tried on, on every device.
#pragma once

#include <cmath>
#include <functional>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {

struct CachedCase {
    AttentionShape shape;
    int64_t queries;
};

inline const CachedCase kCachedCases[] = {
    {{.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1}, 1},
    {{.sequences = 1, .seq_length = 9, .heads = 3, .head_size = 17, .kv_heads = 1}, 1},
    {{.sequences = 1, .seq_length = 130, .heads = 4, .head_size = 64, .kv_heads = 2}, 1},
    {{.sequences = 1, .seq_length = 70, .heads = 6, .head_size = 10, .kv_heads = 2}, 5},
    {{.sequences = 1,
      .seq_length = 33,
      .heads = 2,
      .head_size = 256,
      .kv_heads = 2,
      .scale = 0.02F},
     2},
    {{.sequences = 1, .seq_length = 50, .heads = 2, .head_size = 96, .kv_heads = 2, .softcap = 2},
     1},
    // a window of one key, of some, of all and more
    {{.sequences = 1, .seq_length = 20, .heads = 2, .head_size = 8, .kv_heads = 1, .window = 1}, 3},
    {{.sequences = 1, .seq_length = 70, .heads = 2, .head_size = 8, .kv_heads = 1, .window = 17},
     1},
    {{.sequences = 1, .seq_length = 20, .heads = 2, .head_size = 8, .kv_heads = 1, .window = 99},
     1},
    // values narrower and wider than keys
    {{.sequences = 1,
      .seq_length = 40,
      .heads = 4,
      .head_size = 24,
      .kv_heads = 2,
      .value_head_size = 16},
     3},
    {{.sequences = 1,
      .seq_length = 70,
      .heads = 3,
      .head_size = 17,
      .kv_heads = 1,
      .value_head_size = 200,
      .softcap = 2,
      .window = 33},
     2},
};

/// A case's arguments, rounded to `type`; sinks for those who want them.
struct CachedTensors {
    const CachedCase& of;
    Matrix q, kv, sinks;

    CachedTensors(const CachedCase& of_, DType type)
        : of(of_),
          q(Matrix::random(of.queries, of.shape.query_columns(), type, 1, -2.0, 2.0)),
          kv(Matrix::random(of.shape.seq_length, of.shape.key_value_columns(), type, 2, -2.0, 2.0)),
          sinks(Matrix::random(1, of.shape.heads, type, 3, -2.0, 8.0)) {}

    [[nodiscard]] Matrix exact(Context& ctx, bool with_sinks) const {
        Matrix out(of.queries, of.shape.output_columns(), DType::fp64);
        reference::cached_attention_forward(ctx, q, kv, with_sinks ? sinks : ConstTensor(),
                                            of.shape, out);
        return out;
    }
    /// Scores of d products of at most 4 are off by d 4 d eps scale, so are the logarithms of their
    /// exponentials, twice for the sum; the mean of values of at most 2, over n keys, by as much
    /// and n eps, and is rounded once. A sink is one more score.
    [[nodiscard]] std::function<double(int64_t, int64_t)> bound() const {
        const auto d = static_cast<double>(of.shape.head_size);
        const auto n = static_cast<double>(of.shape.seq_length);
        const double scale =
            of.shape.scale != 0 ? static_cast<double>(of.shape.scale) : 1 / std::sqrt(d);
        const double relative = (2 * (4 * d * (d + 4) * scale + 16) + n + 8) * kEps32;
        const double rounding = unit_roundoff(q.type());
        return [=](int64_t, int64_t) { return 2 * (relative + rounding) * 1.01; };
    }
};

}  // namespace vocabpipe::kernels::test
