// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// One head of one sequence: elements (t, i) of its parts of the packed tensors.
struct Head {
    AttentionShape shape;
    std::span<const int32_t> first_visible;
    int64_t sequence, head;

    [[nodiscard]] int64_t row(int64_t t) const { return sequence * shape.seq_length + t; }
    /// part 0, 1, 2: q, k, v of qkv; 0 for out.
    [[nodiscard]] int64_t col(int64_t part, int64_t i) const {
        if (part == 0) return head * shape.head_size + i;
        const int64_t kv_head = head * shape.kv_heads / shape.heads;
        return shape.query_columns() + (part - 1) * shape.kv_columns() + kv_head * shape.head_size +
               i;
    }
    [[nodiscard]] double scale() const {
        return shape.scale != 0 ? static_cast<double>(shape.scale)
                                : 1.0 / std::sqrt(static_cast<double>(shape.head_size));
    }
    [[nodiscard]] double score(ConstTensor qkv, int64_t query, int64_t key) const {
        double sum = 0.0;
        for (int64_t i = 0; i < shape.head_size; ++i) {
            sum += get(qkv, row(query), col(0, i)) * get(qkv, row(key), col(1, i));
        }
        const auto cap = static_cast<double>(shape.softcap);
        return cap > 0 ? cap * std::tanh(sum * scale() / cap) : sum * scale();
    }
    /// d score / d (q k).
    [[nodiscard]] double slope(double score) const {
        if (shape.softcap <= 0) return scale();
        const double tanh = score / static_cast<double>(shape.softcap);
        return scale() * (1.0 - tanh * tanh);
    }
    [[nodiscard]] int64_t first_key(int64_t query) const {
        const int64_t first = shape.window > 0 ? std::max<int64_t>(query - shape.window + 1, 0) : 0;
        if (first_visible.empty()) return first;
        return std::max<int64_t>(first, first_visible[static_cast<size_t>(row(query))]);
    }
};

void add_to(Tensor tensor, int64_t row, int64_t col, double value) {
    set(tensor, row, col, get(tensor, row, col) + value);
}

template <typename Body>
void for_each_head(Context& ctx, AttentionShape shape, std::span<const int32_t> first_visible,
                   Body&& body) {
    for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
        for (int64_t head = 0; head < shape.heads; ++head) {
            body(Head{shape, first_visible, sequence, head});
            ctx.poll();
        }
    }
}

void forward_row(const Head& head, ConstTensor qkv, int64_t query, Tensor out, Tensor log_sum_exp) {
    double maximum = -std::numeric_limits<double>::infinity();
    for (int64_t key = head.first_key(query); key <= query; ++key) {
        maximum = std::max(maximum, head.score(qkv, query, key));
    }
    double sum = 0.0;
    for (int64_t key = head.first_key(query); key <= query; ++key) {
        sum += std::exp(head.score(qkv, query, key) - maximum);
    }
    const double row_log_sum = maximum + std::log(sum);
    set(log_sum_exp, head.row(query), head.head, row_log_sum);
    for (int64_t i = 0; i < head.shape.head_size; ++i) {
        double value = 0.0;
        for (int64_t key = head.first_key(query); key <= query; ++key) {
            const double p = std::exp(head.score(qkv, query, key) - row_log_sum);
            value += p * get(qkv, head.row(key), head.col(2, i));
        }
        set(out, head.row(query), head.col(0, i), value);
    }
}

}  // namespace

int64_t attention_workspace_bytes(AttentionShape, DType, int) {
    return 0;
}

void causal_attention_forward(Context& ctx, ConstTensor qkv, AttentionShape shape,
                              std::span<const int32_t> first_visible, Tensor out,
                              Tensor log_sum_exp, std::span<std::byte>) {
    for_each_head(ctx, shape, first_visible, [&](const Head& head) {
        for (int64_t query = 0; query < shape.seq_length; ++query) {
            forward_row(head, qkv, query, out, log_sum_exp);
        }
    });
}

/// dqkv should be fp64: its elements are the accumulators.
void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                               ConstTensor log_sum_exp, AttentionShape shape,
                               std::span<const int32_t> first_visible, Tensor dqkv,
                               std::span<std::byte>) {
    const int64_t d = shape.head_size;
    for (int64_t n = 0; n < dqkv.rows; ++n) {
        for (int64_t i = 0; i < dqkv.cols; ++i) set(dqkv, n, i, 0.0);
    }
    for_each_head(ctx, shape, first_visible, [&](const Head& head) {
        for (int64_t query = 0; query < shape.seq_length; ++query) {
            const int64_t row = head.row(query);
            double delta = 0.0;
            for (int64_t i = 0; i < d; ++i) {
                delta += get(dout, row, head.col(0, i)) * get(out, row, head.col(0, i));
            }
            for (int64_t key = head.first_key(query); key <= query; ++key) {
                const int64_t key_row = head.row(key);
                const double score = head.score(qkv, query, key);
                const double p = std::exp(score - get(log_sum_exp, row, head.head));
                double dp = 0.0;
                for (int64_t i = 0; i < d; ++i) {
                    dp += get(dout, row, head.col(0, i)) * get(qkv, key_row, head.col(2, i));
                }
                const double ds = p * (dp - delta) * head.slope(score);
                for (int64_t i = 0; i < d; ++i) {
                    add_to(dqkv, row, head.col(0, i), ds * get(qkv, key_row, head.col(1, i)));
                    add_to(dqkv, key_row, head.col(1, i), ds * get(qkv, row, head.col(0, i)));
                    add_to(dqkv, key_row, head.col(2, i), p * get(dout, row, head.col(0, i)));
                }
            }
        }
    });
}

}  // namespace vocabpipe::kernels::reference
