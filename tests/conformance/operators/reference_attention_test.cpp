// SPDX-License-Identifier: Apache-2.0
// The reference's attention in fp64: against the textbook, against finite differences, and by
// parts.
#include <span>
#include <utility>
#include <vector>

#include "kernels/reference/operators.hpp"
#include "tests/conformance/attention_oracle.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct SmallAttention {
    AttentionShape shape;
    std::vector<int32_t> first_visible;
};

/// Plain, and with grouped queries, a scale, a cap and a window; both without a mask and with
/// documents of one to three tokens.
std::vector<SmallAttention> small_causal() {
    std::vector<SmallAttention> cases;
    for (const AttentionShape& shape :
         {AttentionShape{
              .sequences = 2, .seq_length = 5, .heads = 2, .head_size = 3, .kv_heads = 2},
          AttentionShape{.sequences = 2,
          .seq_length = 5,
          .heads = 4,
          .head_size = 3,
          .kv_heads = 2,
          .scale = 0.7F,
          .softcap = 1.5F,
          .window = 3}}) {
        cases.push_back({shape, {}});
        cases.push_back({shape, documents(shape, {2, 3, 9})});
    }
    return cases;
}

/// These, and not causal: as many queries as keys, fewer, and more.
std::vector<SmallAttention> small_attentions() {
    auto cases = small_causal();
    AttentionShape shape{.sequences = 2,
                         .seq_length = 5,
                         .heads = 2,
                         .head_size = 3,
                         .kv_heads = 2,
                         .causal = false};
    cases.push_back({shape, {}});
    shape.heads = 4;
    shape.scale = 0.7F;
    shape.softcap = 1.5F;
    shape.queries = 2;
    cases.push_back({shape, {}});
    cases.push_back({{.sequences = 2,
                      .seq_length = 3,
                      .heads = 2,
                      .head_size = 4,
                      .kv_heads = 1,
                      .queries = 7,
                      .causal = false},
                     {}});
    return cases;
}

double exactly(int64_t /*row*/, int64_t /*col*/) {
    return 1e-12;
}

TEST(ReferenceAttention, IsTheTextbooksWithTheGradientOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    for (const auto& [shape, first_visible] : small_attentions()) {
        const int64_t rows = shape.query_tokens(), h = shape.query_columns();
        const int64_t n = shape.tokens(), kv_columns = shape.key_value_columns();
        auto q = Matrix::random(rows, h, DType::fp64, 1, -2.0, 2.0);
        auto kv = Matrix::random(n, kv_columns, DType::fp64, 2, -2.0, 2.0);
        const auto dout = Matrix::random(rows, h, DType::fp64, 3);
        const Naive naive(q.view(), kv.view(), dout, shape, DType::fp64, first_visible);
        Matrix out(rows, h, DType::fp64), log_sum_exp(rows, shape.heads, DType::fp64);
        Matrix dq(rows, h, DType::fp64), dkv(n, kv_columns, DType::fp64);
        const auto loss = [&, shape = shape, &first_visible = first_visible] {
            reference::causal_attention_forward(ctx, q, kv, shape, first_visible, out, log_sum_exp,
                                                {});
            return dot(out, dout);
        };
        loss();
        reference::causal_attention_backward(ctx, dout, q, kv, out, log_sum_exp, shape,
                                             first_visible, dq, dkv, {});
        expect_close(out, naive.out, exactly);
        expect_close(log_sum_exp, naive.log_sum_exp, exactly);
        expect_close(dq, naive.dq, exactly);
        expect_close(dkv, naive.dkv, exactly);
        const auto difference_bound = [](int64_t, int64_t) { return kDifferenceBound; };
        expect_close(dq, numeric_gradient(q, loss), difference_bound);
        expect_close(dkv, numeric_gradient(kv, loss), difference_bound);
    }
}

TEST(ReferenceAttention, PartsOfTheQueriesHaveTheRowsOfAllAndAddUpToTheGradientsOfKeys) {
    Context ctx({.threads = 1, .poll = {}});
    for (const auto& [shape, first_visible] : small_causal()) {
        const int64_t n = shape.tokens(), h = shape.query_columns(),
                      kv_columns = shape.key_value_columns();
        const auto q = Matrix::random(n, h, DType::fp64, 1, -2.0, 2.0);
        const auto kv = Matrix::random(n, kv_columns, DType::fp64, 2, -2.0, 2.0);
        const auto dout = Matrix::random(n, h, DType::fp64, 3);
        const auto zeros = [&] {
            return Matrix(n, kv_columns, DType::fp64).mapped(DType::fp64, [](double) {
                return 0.0;
            });
        };
        Matrix out(n, h, DType::fp64), log_sum_exp(n, shape.heads, DType::fp64),
            dq(n, h, DType::fp64);
        Matrix dkv = zeros(), sums = zeros();
        reference::causal_attention_forward(ctx, q, kv, shape, first_visible, out, log_sum_exp, {});
        reference::causal_attention_backward(ctx, dout, q, kv, out, log_sum_exp, shape,
                                             first_visible, dq, dkv, {});
        Matrix part_out(n, h, DType::fp64), part_sums(n, shape.heads, DType::fp64),
            part_dq(n, h, DType::fp64);
        for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
            const int64_t token = sequence * shape.seq_length;
            for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 4}, {4, 5}}) {
                AttentionShape part = shape;
                part.sequences = 1;
                part.seq_length = end;
                part.queries = end - begin;
                const int64_t first = token + begin, count = end - begin;
                const auto rows = [&](auto& of) { return of.view().row_range(first, count); };
                const auto visible =
                    first_visible.empty()
                        ? std::span<const int32_t>()
                        : std::span(first_visible)
                              .subspan(static_cast<size_t>(first), static_cast<size_t>(count));
                const ConstTensor keys = kv.view().row_range(token, end);
                Matrix part_dkv(end, kv_columns, DType::fp64);
                reference::causal_attention_forward(ctx, rows(q), keys, part, visible,
                                                    rows(part_out), rows(part_sums), {});
                reference::causal_attention_backward(ctx, rows(dout), rows(q), keys, rows(part_out),
                                                     rows(part_sums), part, visible, rows(part_dq),
                                                     part_dkv, {});
                for (int64_t t = 0; t < end; ++t) {
                    for (int64_t i = 0; i < kv_columns; ++i) {
                        sums.set(token + t, i, sums.get(token + t, i) + part_dkv.get(t, i));
                    }
                }
            }
        }
        expect_close(part_out, out, exactly);
        expect_close(part_sums, log_sum_exp, exactly);
        expect_close(part_dq, dq, exactly);
        expect_close(sums, dkv, exactly);
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
