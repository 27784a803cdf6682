// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// One head of one sequence. Queries and keys are counted from the sequence's first.
struct Head {
    AttentionShape shape;
    std::span<const int32_t> first_visible;
    int64_t sequence, head;

    /// Rows of q, out and their gradients, and of kv.
    [[nodiscard]] int64_t query_row(int64_t query) const {
        return sequence * shape.query_count() + query;
    }
    [[nodiscard]] int64_t key_row(int64_t key) const { return sequence * shape.seq_length + key; }
    /// Columns of q, of out, and of k and v in kv, and of their gradients.
    [[nodiscard]] int64_t query_col(int64_t i) const { return head * shape.head_size + i; }
    [[nodiscard]] int64_t out_col(int64_t i) const { return head * shape.value_size() + i; }
    [[nodiscard]] int64_t kv_head() const { return head * shape.kv_heads / shape.heads; }
    [[nodiscard]] int64_t key_col(int64_t i) const { return kv_head() * shape.head_size + i; }
    [[nodiscard]] int64_t value_col(int64_t i) const {
        return shape.key_columns() + kv_head() * shape.value_size() + i;
    }
    [[nodiscard]] double scale() const {
        return shape.scale != 0 ? static_cast<double>(shape.scale)
                                : 1.0 / std::sqrt(static_cast<double>(shape.head_size));
    }
    [[nodiscard]] double score(ConstTensor q, ConstTensor kv, int64_t query, int64_t key) const {
        double sum = 0.0;
        for (int64_t i = 0; i < shape.head_size; ++i) {
            sum += get(q, query_row(query), query_col(i)) * get(kv, key_row(key), key_col(i));
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
    /// The keys that a query sees, up to end_key().
    [[nodiscard]] int64_t first_key(int64_t query) const {
        const int64_t end = end_key(query);
        const int64_t first = shape.window > 0 ? std::max<int64_t>(end - shape.window, 0) : 0;
        if (first_visible.empty()) return first;
        return std::max<int64_t>(first, first_visible[static_cast<size_t>(query_row(query))]);
    }
    [[nodiscard]] int64_t end_key(int64_t query) const {
        return shape.causal ? shape.first_query() + query + 1 : shape.seq_length;
    }
};

void add_to(Tensor tensor, int64_t row, int64_t col, double value) {
    set(tensor, row, col, get(tensor, row, col) + value);
}

/// Calls body(head, query).
template <typename Body>
void for_each_query(Context& ctx, AttentionShape shape, std::span<const int32_t> first_visible,
                    Body&& body) {
    for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
        for (int64_t head = 0; head < shape.heads; ++head) {
            for (int64_t query = 0; query < shape.query_count(); ++query) {
                body(Head{shape, first_visible, sequence, head}, query);
            }
            ctx.poll();
        }
    }
}

void forward_row(const Head& head, ConstTensor q, ConstTensor kv, int64_t query, Tensor out,
                 Tensor log_sum_exp) {
    double maximum = -std::numeric_limits<double>::infinity();
    for (int64_t key = head.first_key(query); key < head.end_key(query); ++key) {
        maximum = std::max(maximum, head.score(q, kv, query, key));
    }
    double sum = 0.0;
    for (int64_t key = head.first_key(query); key < head.end_key(query); ++key) {
        sum += std::exp(head.score(q, kv, query, key) - maximum);
    }
    const double row_log_sum = maximum + std::log(sum);
    set(log_sum_exp, head.query_row(query), head.head, row_log_sum);
    for (int64_t i = 0; i < head.shape.value_size(); ++i) {
        double value = 0.0;
        for (int64_t key = head.first_key(query); key < head.end_key(query); ++key) {
            const double p = std::exp(head.score(q, kv, query, key) - row_log_sum);
            value += p * get(kv, head.key_row(key), head.value_col(i));
        }
        set(out, head.query_row(query), head.out_col(i), value);
    }
}

}  // namespace

int64_t attention_workspace_bytes(AttentionShape, DType, int) {
    return 0;
}

void causal_attention_forward(Context& ctx, ConstTensor q, ConstTensor kv, AttentionShape shape,
                              std::span<const int32_t> first_visible, Tensor out,
                              Tensor log_sum_exp, std::span<std::byte>) {
    for_each_query(ctx, shape, first_visible, [&](const Head& head, int64_t query) {
        forward_row(head, q, kv, query, out, log_sum_exp);
    });
}

/// dq and dkv should be fp64: their elements are the accumulators.
void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor q, ConstTensor kv,
                               ConstTensor out, ConstTensor log_sum_exp, AttentionShape shape,
                               std::span<const int32_t> first_visible, Tensor dq, Tensor dkv,
                               std::span<std::byte>) {
    const int64_t d = shape.head_size, values = shape.value_size();
    for (const Tensor& sums : {dq, dkv}) {
        for (int64_t n = 0; n < sums.rows; ++n) {
            for (int64_t i = 0; i < sums.cols; ++i) set(sums, n, i, 0.0);
        }
    }
    for_each_query(ctx, shape, first_visible, [&](const Head& head, int64_t query) {
        const int64_t row = head.query_row(query);
        double delta = 0.0;
        for (int64_t i = 0; i < values; ++i) {
            delta += get(dout, row, head.out_col(i)) * get(out, row, head.out_col(i));
        }
        for (int64_t key = head.first_key(query); key < head.end_key(query); ++key) {
            const int64_t key_row = head.key_row(key);
            const double score = head.score(q, kv, query, key);
            const double p = std::exp(score - get(log_sum_exp, row, head.head));
            double dp = 0.0;
            for (int64_t i = 0; i < values; ++i) {
                dp += get(dout, row, head.out_col(i)) * get(kv, key_row, head.value_col(i));
            }
            const double ds = p * (dp - delta) * head.slope(score);
            for (int64_t i = 0; i < d; ++i) {
                add_to(dq, row, head.query_col(i), ds * get(kv, key_row, head.key_col(i)));
                add_to(dkv, key_row, head.key_col(i), ds * get(q, row, head.query_col(i)));
            }
            for (int64_t i = 0; i < values; ++i) {
                add_to(dkv, key_row, head.value_col(i), p * get(dout, row, head.out_col(i)));
            }
        }
    });
}

}  // namespace vocabpipe::kernels::reference
