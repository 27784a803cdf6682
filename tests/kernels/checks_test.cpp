// SPDX-License-Identifier: Apache-2.0
// What the operators of every device ask of their arguments.
#include "kernels/attention_checks.hpp"
#include "kernels/norm_checks.hpp"
#include "kernels/vocabulary_checks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe::kernels {
namespace {

/// A tensor of this shape that nobody reads.
Tensor tensor(int64_t rows, int64_t cols, DType type = DType::bf16) {
    static std::byte memory;
    return {&memory, rows, cols, type};
}

/// `check` takes these arguments, but none of them with another shape or type.
template <size_t kCount>
void expect_each_needed(
    const std::array<Tensor, kCount>& arguments,
    const std::function<void(const std::array<Tensor, kCount>& arguments)>& check) {
    EXPECT_NO_THROW(check(arguments));
    for (size_t i = 0; i < kCount; ++i) {
        const Tensor good = arguments.at(i);
        const DType other = good.dtype == DType::fp32 ? DType::bf16 : DType::fp32;
        for (const Tensor& wrong :
             {tensor(good.rows + 1, good.cols, good.dtype),
              tensor(good.rows, good.cols - 1, good.dtype), tensor(good.rows, good.cols, other)}) {
            std::array<Tensor, kCount> changed = arguments;
            changed.at(i) = wrong;
            EXPECT_THROW(check(changed), UsageError)
                << "argument " << i << " (" << wrong.rows << ", " << wrong.cols << ") of "
                << size_of(wrong.dtype) << " bytes";
        }
    }
}

/// 6 tokens; 4 heads of queries, 2 of keys and values, of 6.
constexpr AttentionShape kShape{
    .sequences = 2, .seq_length = 3, .heads = 4, .head_size = 6, .kv_heads = 2};
constexpr int64_t kTokens = 6, kQuery = 24, kKeysValues = 24, kQkv = 48;

TEST(AttentionChecks, TakeNoOtherShapesOrTypes) {
    AttentionShape shape = kShape;
    for (const int64_t queries : {0, 3, 2}) {
        shape.queries = queries;
        const int64_t rows = shape.query_tokens();
        const Tensor q = tensor(rows, kQuery), kv = tensor(kTokens, kKeysValues);
        expect_each_needed<4>({q, kv, q, tensor(rows, 4, DType::fp32)}, [&](const auto& a) {
            require_attention(a[0], a[1], shape, {}, a[2], a[3]);
        });
        expect_each_needed<3>({q, q, kv}, [&](const auto& a) {
            require_attention_gradients(a[0], q, kv, q, a[1], a[2]);
        });
    }
}

TEST(AttentionChecks, TakeNoNegativeOptionsAndOnlyHeadsThatCanShareKeys) {
    const auto check = [](AttentionShape shape) {
        const Tensor q = tensor(shape.query_tokens(), shape.query_columns());
        require_attention(q, tensor(kTokens, shape.key_value_columns()), shape, {}, q,
                          tensor(q.rows, shape.heads, DType::fp32));
    };
    EXPECT_NO_THROW(check(kShape));
    for (const auto& change : std::initializer_list<std::function<void(AttentionShape&)>>{
             [](AttentionShape& shape) { shape.kv_heads = 3; },
             [](AttentionShape& shape) { shape.kv_heads = 0; },
             [](AttentionShape& shape) { shape.scale = -1; },
             [](AttentionShape& shape) { shape.softcap = -1; },
             [](AttentionShape& shape) { shape.queries = -1; },
             [](AttentionShape& shape) { shape.queries = 4; },
             [](AttentionShape& shape) { shape.window = -1; },
             [](AttentionShape& shape) { shape.value_head_size = -1; }}) {
        AttentionShape shape = kShape;
        change(shape);
        EXPECT_THROW(check(shape), UsageError);
    }
}

TEST(AttentionChecks, TakeAFirstVisibleTokenForEveryQueryOrNone) {
    AttentionShape shape = kShape;
    for (const int64_t queries : {0, 2}) {
        shape.queries = queries;
        const Tensor q = tensor(shape.query_tokens(), kQuery), kv = tensor(kTokens, kKeysValues);
        const std::vector<int32_t> first_visible(7);
        for (const size_t count : {0, 1, 3, 4, 5, 6, 7}) {
            const auto check = [&] {
                require_attention(q, kv, shape, std::span(first_visible).first(count), q,
                                  tensor(q.rows, 4, DType::fp32));
            };
            if (count == 0 || count == static_cast<size_t>(q.rows)) {
                EXPECT_NO_THROW(check()) << count;
            } else {
                EXPECT_THROW(check(), UsageError) << count;
            }
        }
    }
}

TEST(AttentionChecks, TakeNoFirstVisibleTokenBehindTheQueryItselfOrBeforeItsSequence) {
    AttentionShape last_two = kShape;
    last_two.queries = 2;
    for (const auto& [shape, latest] :
         {std::pair<AttentionShape, std::vector<int32_t>>{kShape, {0, 1, 2, 0, 1, 2}},
          {last_two, {1, 2, 1, 2}}}) {
        EXPECT_NO_THROW(require_visible_tokens(shape, latest));
        for (size_t n = 0; n < latest.size(); ++n) {
            for (const int32_t wrong : {latest[n] + 1, -1}) {
                std::vector<int32_t> changed = latest;
                changed[n] = wrong;
                EXPECT_THROW(require_visible_tokens(shape, changed), UsageError)
                    << n << " " << wrong;
            }
        }
    }
}

TEST(LossChecks, TakeNoWeightsOutsideOfTheirRanges) {
    EXPECT_NO_THROW(require_options({.label_smoothing = 0.1F, .z_loss = 1e-4F}));
    for (const float wrong : {-1e-4F, NAN}) {
        EXPECT_THROW(require_options({.z_loss = wrong}), UsageError) << wrong;
        EXPECT_THROW(require_options({.label_smoothing = wrong}), UsageError) << wrong;
        EXPECT_THROW(require_options({.logit_softcap = wrong}), UsageError) << wrong;
    }
    EXPECT_THROW(require_options({.label_smoothing = 1}), UsageError);
}

TEST(RotaryChecks, TakeATableOfAllPositionsAndAnEvenPartOfAHead) {
    const Tensor qkv = tensor(kTokens, kQkv);
    const auto check = [&](const Tensor& table) { require_rotary(table, kShape, qkv); };
    EXPECT_NO_THROW(check(tensor(3, 6, DType::fp32)));
    EXPECT_NO_THROW(check(tensor(9, 6, DType::fp32)));
    EXPECT_THROW(check(tensor(2, 6, DType::fp32)), UsageError);
    EXPECT_NO_THROW(check(tensor(3, 4, DType::fp32)));
    EXPECT_THROW(check(tensor(3, 3, DType::fp32)), UsageError);
    EXPECT_THROW(check(tensor(3, 8, DType::fp32)), UsageError);
    EXPECT_THROW(check(tensor(3, 6)), UsageError);
    EXPECT_THROW(require_rotary(tensor(3, 6, DType::fp32), kShape, tensor(kTokens, kQuery)),
                 UsageError);
}

TEST(NormChecks, TakeNoOtherShapesOrTypes) {
    const Tensor rows = tensor(6, 5), weight = tensor(1, 5);
    const Tensor gradient = tensor(1, 5, DType::fp32);
    expect_each_needed<4>({rows, weight, rows, rows},
                          [](const auto& a) { require_norm_forward(a[0], a[1], a[2], a[3]); });
    expect_each_needed<5>({rows, rows, weight, rows, rows}, [](const auto& a) {
        require_norm_backward_input(a[0], a[1], a[2], a[3], a[4]);
    });
    expect_each_needed<3>({rows, rows, gradient},
                          [](const auto& a) { require_norm_backward_weight(a[0], a[1], a[2]); });
    expect_each_needed<1>({weight}, [&](const auto& a) { require_norm_weight(a[0], rows); });
    expect_each_needed<1>({tensor(6, 2, DType::fp32)}, [](const auto& a) {
        require_norm_statistics(a[0], 6, kLayerNormStatistics);
    });
    EXPECT_NO_THROW(require_norm_forward(rows, weight, {}, rows)) << "a residual may be missing";
    EXPECT_THROW(require_norm_weight({}, rows), UsageError) << "a weight may not";
}

TEST(HeadNormChecks, TakeNoOtherShapesOrTypes) {
    const Tensor qkv = tensor(kTokens, kQkv), statistics = tensor(kTokens, 6, DType::fp32);
    expect_each_needed<3>({qkv, qkv, statistics},
                          [](const auto& a) { require_head_norm(a[0], a[1], a[2], kShape); });
    for (const DType type : {DType::bf16, DType::fp32}) {
        expect_each_needed<2>({tensor(1, 6, type), tensor(1, 6, type)}, [&](const auto& a) {
            require_head_gammas(a[0], a[1], kShape, type);
        });
    }
}

}  // namespace
}  // namespace vocabpipe::kernels
