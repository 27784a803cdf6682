// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/matmul.hpp"

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/engine.hpp"
#include "kernels/host/panel_product.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// The same product with widened operands.
MatmulShape widened(MatmulShape s) {
    s.a_stride = s.stored_a().cols;
    s.b_stride = s.stored_b().cols;
    s.ab_type = s.bias_type = DType::fp32;
    if (s.c_type == DType::bf16) {
        s.c_type = DType::fp32;
        s.c_stride = s.n;
    }
    return s;
}

void widen(const void* from, int64_t stride, MatmulShape::Stored size, float* to) {
    for (int64_t row = 0; row < size.rows; ++row) {
        const Bf16* const source = static_cast<const Bf16*>(from) + row * stride;
        for (int64_t i = 0; i < size.cols; ++i) to[row * size.cols + i] = to_float(source[i]);
    }
}

void multiply(const Engine& engine, Engine::Lane& lane, const MatmulShape& s, const void* a,
              const void* b, void* c, const void* bias) {
    const InstructionSet set = engine.instruction_set();
    panel_product(set, s, a, b, c, bias, lane.packed.at_least(panel_product_bytes(set, s)));
}

/// Runs a product of bf16 operands as one of fp32.
void multiply_widened(const Engine& engine, Engine::Lane& lane, const MatmulShape& s, const void* a,
                      const void* b, void* c, const void* bias) {
    const MatmulShape::Stored of_a = s.stored_a(), of_b = s.stored_b();
    const bool wide_bias = s.has_bias && s.bias_type == DType::bf16;
    const bool narrow = s.c_type == DType::bf16;
    const int64_t sizes[] = {of_a.rows * of_a.cols, of_b.rows * of_b.cols, wide_bias ? s.n : 0,
                             narrow ? s.m * s.n : 0};
    const int64_t count = sizes[0] + sizes[1] + sizes[2] + sizes[3];
    auto* const wide_a =
        reinterpret_cast<float*>(lane.wide.at_least(count * int64_t{sizeof(float)}));
    float* const wide_b = wide_a + sizes[0];
    float* const wide_row = wide_b + sizes[1];
    float* const wide_c = wide_row + sizes[2];
    widen(a, s.a_stride, of_a, wide_a);
    widen(b, s.b_stride, of_b, wide_b);
    if (wide_bias) widen(bias, s.n, {1, s.n}, wide_row);
    multiply(engine, lane, widened(s), wide_a, wide_b, narrow ? wide_c : c,
             wide_bias ? wide_row : bias);
    if (!narrow) return;
    for (int64_t row = 0; row < s.m; ++row) {
        Bf16* const to = static_cast<Bf16*>(c) + row * s.c_stride;
        for (int64_t i = 0; i < s.n; ++i) to[i] = to_bf16(wide_c[row * s.n + i]);
    }
}

}  // namespace

bool multiplies_with_avx512(const Engine& engine, DType type) {
    return has_avx512(engine.instruction_set(), type);
}

void run_matmul(Engine& engine, const MatmulShape& shape, int thread, const void* a, const void* b,
                void* c, const void* bias) {
    require(shape.ab_type == DType::bf16 || shape.c_type == DType::fp32,
            "an fp32 result of an fp32 product");
    Engine::Lane& lane = engine.lane(thread);
    if (!shape.has_bias) bias = nullptr;
    (has_panels(engine.instruction_set(), shape.ab_type) ? multiply : multiply_widened)(
        engine, lane, shape, a, b, c, bias);
}

}  // namespace vocabpipe::kernels::host
