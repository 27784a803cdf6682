// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/bf16.hpp"
#include "kernels/host/engine_state.hpp"
#include "kernels/host/panel_product.hpp"

namespace vocabpipe::kernels::host {

namespace {

struct Pointers {
    const std::byte* a = nullptr;
    const std::byte* b = nullptr;
    const std::byte* bias = nullptr;
    std::byte* c = nullptr;
};

void run_primitive(MatmulPrimitive& matmul, Engine::State::Lane& resources, int thread,
                   const Pointers& at) {
    auto& lane = matmul.lanes[static_cast<size_t>(thread)];
    // oneDNN has no const memory; inputs are only read.
    lane.a.set_data_handle(const_cast<std::byte*>(at.a));
    lane.b.set_data_handle(const_cast<std::byte*>(at.b));
    lane.c.set_data_handle(at.c);
    // The C interface: an unordered_map per call would cost as much as a small product.
    std::array<dnnl_exec_arg_t, 5> arguments{{{DNNL_ARG_SRC, lane.a.get()},
                                              {DNNL_ARG_WEIGHTS, lane.b.get()},
                                              {DNNL_ARG_DST, lane.c.get()}}};
    int count = 3;
    const auto append = [&](int argument, const dnnl::memory& value) {
        arguments[static_cast<size_t>(count++)] = {argument, value.get()};
    };
    if (at.bias != nullptr) {
        lane.bias.set_data_handle(const_cast<std::byte*>(at.bias));
        append(DNNL_ARG_BIAS, lane.bias);
    }
    if (matmul.scratch_bytes > 0) {
        lane.scratch.set_data_handle(resources.scratch.at_least(matmul.scratch_bytes));
        append(DNNL_ARG_SCRATCHPAD, lane.scratch);
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(matmul.primitive.get(), resources.stream.get(),
                                                   count, arguments.data()),
                            "vocabpipe: oneDNN could not run a matrix product");
}

float* floats(std::byte* bytes) {
    return reinterpret_cast<float*>(bytes);
}
const float* floats(const std::byte* bytes) {
    return reinterpret_cast<const float*>(bytes);
}
std::byte* bytes(float* data) {
    return reinterpret_cast<std::byte*>(data);
}

/// Copies rows of floats; both sides may be strided.
void copy(const float* from, int64_t from_stride, MatmulShape::Stored size, float* to,
          int64_t to_stride) {
    for (int64_t row = 0; row < size.rows; ++row) {
        std::copy_n(from + row * from_stride, size.cols, to + row * to_stride);
    }
}

/// to (cols, rows) dense = from (rows, cols) transposed, by blocks that stay in a first-level
/// cache.
void transpose(const float* from, int64_t stride, MatmulShape::Stored size, float* to) {
    constexpr int64_t kBlock = 16;
    for (int64_t top = 0; top < size.rows; top += kBlock) {
        const int64_t bottom = std::min(top + kBlock, size.rows);
        for (int64_t col = 0; col < size.cols; ++col) {
            for (int64_t row = top; row < bottom; ++row) {
                to[col * size.rows + row] = from[row * stride + col];
            }
        }
    }
}

/// Runs a part on fp32 operands, copied where that is faster or they are smaller than the
/// primitive. Padding is zero, and does not reach c.
void run_packed(Matmul& matmul, const Matmul::Part& part, Engine::State::Lane& resources,
                int thread, const Pointers& at) {
    const MatmulShape& s = matmul.run;
    const MatmulStrip& strip = part.strip;
    MatmulShape real = s, padded = s;
    real.m = strip.rows;
    real.n = strip.columns;
    padded.m = strip.padded_rows;
    padded.n = strip.padded_columns;
    const bool packs_b = padded.n != real.n, packs_c = strip.is_padded();
    const std::array<int64_t, 4> sizes{
        part.packs_a ? padded.m * s.k : 0, packs_b ? padded.n * s.k : 0,
        packs_b && s.has_bias ? padded.n : 0, packs_c ? padded.m * padded.n : 0};
    const int64_t count = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    float* const a = floats(resources.packed.at_least(count * int64_t{sizeof(float)}));
    float* const b = a + sizes[0];
    float* const bias = b + sizes[1];
    float* const c = bias + sizes[2];
    if (packs_c) std::fill_n(a, count, 0.0F);

    Pointers run = at;
    if (part.packs_a) {
        if (s.transpose_a) {
            transpose(floats(at.a), s.a_stride, real.stored_a(), a);
        } else {
            copy(floats(at.a), s.a_stride, real.stored_a(), a, s.k);
        }
        run.a = bytes(a);
    }
    if (packs_b) {
        copy(floats(at.b), s.b_stride, real.stored_b(), b, padded.stored_b().cols);
        run.b = bytes(b);
        if (at.bias != nullptr) {
            std::copy_n(floats(at.bias), real.n, bias);
            run.bias = bytes(bias);
        }
    }
    const MatmulShape::Stored result{real.m, real.n};
    if (packs_c) {
        if (s.accumulate) copy(floats(at.c), s.c_stride, result, c, padded.n);
        run.c = bytes(c);
    }
    run_primitive(matmul.primitives[part.primitive], resources, thread, run);
    if (packs_c) copy(c, padded.n, result, floats(at.c), s.c_stride);
}

void run_as_prepared(Matmul& matmul, Engine::State::Lane& resources, int thread,
                     const Pointers& from) {
    if (matmul.panel_bytes > 0) {
        return panel_product(matmul.run, from.a, from.b, from.c, from.bias,
                             resources.packed.at_least(matmul.panel_bytes));
    }
    for (const Matmul::Part& part : matmul.parts) {
        const Pointers at{.a = from.a + part.a,
                          .b = from.b + part.b,
                          .bias = from.bias == nullptr ? nullptr : from.bias + part.bias,
                          .c = from.c + part.c};
        if (part.packs_a || part.strip.is_padded()) {
            run_packed(matmul, part, resources, thread, at);
        } else {
            run_primitive(matmul.primitives[part.primitive], resources, thread, at);
        }
    }
}

void widen(const void* from, int64_t stride, MatmulShape::Stored size, float* to) {
    for (int64_t row = 0; row < size.rows; ++row) {
        const Bf16* const source = static_cast<const Bf16*>(from) + row * stride;
        for (int64_t i = 0; i < size.cols; ++i) to[row * size.cols + i] = to_float(source[i]);
    }
}

/// Runs a product of bf16 operands as one of fp32.
void run_widened(Matmul& matmul, Engine::State::Lane& resources, int thread, const Pointers& from) {
    const MatmulShape& s = matmul.shape;
    const MatmulShape::Stored a = s.stored_a(), b = s.stored_b();
    const bool wide_bias = s.has_bias && s.bias_type == DType::bf16;
    const bool narrow = s.c_type == DType::bf16;
    const int64_t sizes[] = {a.rows * a.cols, b.rows * b.cols, wide_bias ? s.n : 0,
                             narrow ? s.m * s.n : 0};
    const int64_t count = sizes[0] + sizes[1] + sizes[2] + sizes[3];
    float* const wide_a = floats(resources.wide.at_least(count * int64_t{sizeof(float)}));
    float* const wide_b = wide_a + sizes[0];
    float* const bias = wide_b + sizes[1];
    float* const c = bias + sizes[2];
    widen(from.a, s.a_stride, a, wide_a);
    widen(from.b, s.b_stride, b, wide_b);
    if (wide_bias) widen(from.bias, s.n, {1, s.n}, bias);
    run_as_prepared(matmul, resources, thread,
                    {.a = bytes(wide_a),
                     .b = bytes(wide_b),
                     .bias = wide_bias ? bytes(bias) : from.bias,
                     .c = narrow ? bytes(c) : from.c});
    if (!narrow) return;
    for (int64_t row = 0; row < s.m; ++row) {
        Bf16* const to = reinterpret_cast<Bf16*>(from.c) + row * s.c_stride;
        for (int64_t i = 0; i < s.n; ++i) to[i] = to_bf16(c[row * s.n + i]);
    }
}

}  // namespace

void run_matmul(Engine& engine, Matmul& matmul, int thread, const void* a, const void* b, void* c,
                const void* bias) {
    auto& resources = engine.state().lanes[static_cast<size_t>(thread)];
    const Pointers from{
        .a = static_cast<const std::byte*>(a),
        .b = static_cast<const std::byte*>(b),
        .bias = matmul.shape.has_bias ? static_cast<const std::byte*>(bias) : nullptr,
        .c = static_cast<std::byte*>(c)};
    const bool widens = matmul.shape.ab_type != matmul.run.ab_type;
    if (widens) return run_widened(matmul, resources, thread, from);
    run_as_prepared(matmul, resources, thread, from);
}

}  // namespace vocabpipe::kernels::host
