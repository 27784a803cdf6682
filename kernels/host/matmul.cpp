// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/matmul.hpp"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/check.hpp"
#include "kernels/host/engine_state.hpp"
#include "kernels/host/panel_product.hpp"

namespace vocabpipe::kernels::host {

namespace {

using dnnl::memory;

memory::data_type dnnl_type(DType type) {
    return type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

/// A (rows, cols) operand; stored transposed if `transpose`, with `stride` between stored rows.
memory::desc describe(int64_t rows, int64_t cols, int64_t stride, bool transpose, DType type) {
    // A single row of stride 1 fits both layouts; oneDNN 3.6 multiplies it wrongly if called
    // transposed.
    const bool either = transpose && rows == 1 && stride == 1;
    const auto strides = either      ? memory::dims{cols, 1}
                         : transpose ? memory::dims{1, stride}
                                     : memory::dims{stride, 1};
    return {{rows, cols}, dnnl_type(type), strides};
}

/// The only place that differs between oneDNN 2.x and 3.x.
dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const memory::desc& a,
                                             const memory::desc& b, const memory::desc* bias,
                                             const memory::desc& c,
                                             const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
    return bias ? dnnl::matmul::primitive_desc(engine, a, b, *bias, c, attributes)
                : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
    const auto operation = bias ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c);
    return {operation, attributes, engine};
#endif
}

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

/// Makes one primitive per strip size, and lists where the strips begin.
void add_parts(Matmul& matmul, const dnnl::engine& engine, int lanes) {
    const MatmulShape& s = matmul.run;
    std::vector<MatmulShape> shapes;
    for (const MatmulStrip& strip : matmul_strips(s.m, s.n)) {
        MatmulShape one = s;
        one.m = strip.padded_rows;
        one.n = strip.padded_columns;
        const bool packs_a = s.transpose_a || one.m != strip.rows;
        if (packs_a) {
            one.transpose_a = false;
            one.a_stride = s.k;
        }
        if (one.n != strip.columns) one.b_stride = one.stored_b().cols;
        if (strip.is_padded()) one.c_stride = one.n;
        const auto found = std::find(shapes.begin(), shapes.end(), one);
        const auto index = static_cast<size_t>(found - shapes.begin());
        if (found == shapes.end()) {
            shapes.push_back(one);
            matmul.primitives.emplace_back(engine, one, lanes);
        }
        const int64_t ab = size_of(s.ab_type);
        matmul.parts.push_back({.primitive = index,
                                .strip = strip,
                                .packs_a = packs_a,
                                .a = ab * strip.row * (s.transpose_a ? 1 : s.a_stride),
                                .b = ab * strip.column * (s.transpose_b ? s.b_stride : 1),
                                .bias = size_of(s.bias_type) * strip.column,
                                .c = size_of(s.c_type) * (strip.row * s.c_stride + strip.column)});
    }
}

}  // namespace

Matmul::Matmul(const dnnl::engine& engine, const MatmulKernels& kernels, const MatmulShape& of,
               int lanes)
    : shape(of), run(of) {
    if (!kernels.panels(shape.ab_type) && shape.ab_type == DType::bf16) run = widened(shape);
    if (kernels.panels(run.ab_type)) {
        require(run.ab_type == DType::bf16 || run.c_type == DType::fp32,
                "an fp32 result of an fp32 product");
        panel_bytes = panel_product_bytes(run);
    } else {
        add_parts(*this, engine, lanes);
    }
}

MatmulPrimitive::MatmulPrimitive(const dnnl::engine& engine, const MatmulShape& shape,
                                 int lane_count) {
    const auto& s = shape;
    const auto a = describe(s.m, s.k, s.a_stride, s.transpose_a, s.ab_type);
    const auto b = describe(s.k, s.n, s.b_stride, s.transpose_b, s.ab_type);
    const auto c = describe(s.m, s.n, s.c_stride, false, s.c_type);
    const auto bias = describe(1, s.n, s.n, false, s.bias_type);

    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0F);
        attributes.set_post_ops(sum);
    }
    const auto description =
        describe_matmul(engine, a, b, s.has_bias ? &bias : nullptr, c, attributes);
    primitive = dnnl::matmul(description);
    const auto scratch = description.scratchpad_desc();
    scratch_bytes = static_cast<int64_t>(scratch.get_size());
    for (int lane = 0; lane < lane_count; ++lane) {
        const auto empty = [&](const memory::desc& desc) {
            return memory(desc, engine, DNNL_MEMORY_NONE);
        };
        lanes.push_back({empty(a), empty(b), s.has_bias ? empty(bias) : memory(), empty(c),
                         scratch_bytes > 0 ? empty(scratch) : memory()});
    }
}

size_t MatmulShapeHash::operator()(const MatmulShape& s) const {
    uint64_t hash = 0;
    const auto mix = [&](int64_t value) {
        hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
    };
    for (const int64_t value : {s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride}) mix(value);
    for (const DType type : {s.ab_type, s.c_type, s.bias_type}) mix(static_cast<int64_t>(type));
    mix(s.transpose_a | s.transpose_b << 1 | s.accumulate << 2 | s.has_bias << 3);
    return hash;
}

OneThreadProducts::OneThreadProducts(Engine& engine) : engine_(engine) {
    omp_set_num_threads(1);
}
OneThreadProducts::~OneThreadProducts() {
    engine_.bind_thread();
}

bool multiplies_with_avx512(Engine& engine, DType type) {
    return engine.state().kernels.panels(type);
}

Matmul& prepare_matmul(Engine& engine, const MatmulShape& shape) {
    auto& state = engine.state();
    if (const auto found = state.matmuls.find(shape); found != state.matmuls.end()) {
        return found->second;
    }
    const OneThreadProducts guard(engine);  // oneDNN plans for the team size at creation
    const auto [created, inserted] =
        state.matmuls.try_emplace(shape, state.engine, state.kernels, shape, engine.threads());
    return created->second;
}

std::vector<Matmul*> prepare_matmuls(Engine& engine, std::span<const MatmulShape> shapes) {
    auto& state = engine.state();
    std::vector<MatmulShape> missing;
    for (const MatmulShape& shape : shapes) {
        if (!state.matmuls.contains(shape) &&
            std::find(missing.begin(), missing.end(), shape) == missing.end()) {
            missing.push_back(shape);
        }
    }
    const OneThreadProducts guard(engine);
    std::vector<std::optional<Matmul>> created(missing.size());
    std::vector<std::exception_ptr> errors(missing.size());
    const int team = std::clamp(static_cast<int>(missing.size()), 1, engine.threads());
#pragma omp parallel for num_threads(team) schedule(static, 1)
    for (size_t i = 0; i < missing.size(); ++i) {
        try {
            created[i].emplace(state.engine, state.kernels, missing[i], engine.threads());
        } catch (...) {
            errors[i] = std::current_exception();
        }
    }
    for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
    }
    for (size_t i = 0; i < missing.size(); ++i) {
        state.matmuls.try_emplace(missing[i], std::move(*created[i]));
    }
    std::vector<Matmul*> found;
    for (const MatmulShape& shape : shapes) found.push_back(&state.matmuls.at(shape));
    return found;
}

void limit_matmuls(Engine& engine) {
    constexpr size_t kMost = 2048;
    auto& matmuls = engine.state().matmuls;
    if (matmuls.size() > kMost) matmuls.clear();
}

}  // namespace vocabpipe::kernels::host
