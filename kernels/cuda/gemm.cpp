// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "kernels/check.hpp"
#include "kernels/cuda/engine_state.hpp"
#include "kernels/cuda/launch_errors.hpp"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/product_plan.hpp"
#include "kernels/cuda/tiled_gemm.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// The number of an expert's rows changes each time.
constexpr size_t kMostPiecePlans = 1024;

constexpr int64_t kVector = 8;       ///< bf16 elements of 16 bytes
constexpr int64_t kFewestCut = 256;  ///< below, a second launch costs more than it saves

/// False for products that cuBLASLt does not support by its documentation, or would refuse with
/// another error than "not supported".
bool may_exist(const Product& p) {
    if (p.a.dtype == DType::fp32 && p.c.dtype != DType::fp32) return false;
    if (p.bias && p.bias.dtype != p.c.dtype) return false;
    if (p.epilogue != Epilogue::none) {
        const bool aligned = reinterpret_cast<uintptr_t>(p.aux.data) % kLargestAlignment == 0;
        if (!aligned || p.aux.stride % 8 != 0 || p.aux.dtype != p.c.dtype) return false;
    }
    return true;
}

void require_product(const Product& p) {
    const int64_t k = p.transpose_a ? p.a.rows : p.a.cols;
    require((p.transpose_a ? p.a.cols : p.a.rows) == p.c.rows, "rows of op(a) == rows of c");
    require((p.transpose_b ? p.b.rows : p.b.cols) == p.c.cols, "columns of op(b) == columns of c");
    require((p.transpose_b ? p.b.cols : p.b.rows) == k, "columns of op(a) == rows of op(b)");
    require(!p.bias || has_shape(p.bias, 1, p.c.cols), "bias of shape (1, n)");
    require(p.batch == 1 || (!p.bias && p.epilogue == Epilogue::none), "one product per bias");
    require(p.a.dtype == p.b.dtype && p.a.dtype != DType::fp64, "a and b both fp32 or both bf16");
    require(p.c.dtype != DType::fp64, "c fp32 or bf16");
    require(!p.addend || (same_shape(p.addend, p.c) && p.addend.dtype == p.c.dtype),
            "addend of c's shape and type");
}

bool empty(const Product& p) {
    return p.c.size() == 0 || p.batch == 0;
}

/// Rows of experts change from step to step. They are rounded up to a multiple of this to choose
/// the algorithm, so that the heuristic, which takes long, is asked in the first steps only.
constexpr int64_t kRowsOfAnAlgorithm = 128;

/// Adapts the shape of one of several concurrent products: rounds its rows up, and limits it to as
/// many multiprocessors as a product of that size can use while the others use theirs.
void share_gpu(ProductShape& shape, bool rows_are_summed, const Engine& engine) {
    int64_t& rows = rows_are_summed ? shape.k : shape.m;
    rows = (rows + kRowsOfAnAlgorithm - 1) / kRowsOfAnAlgorithm * kRowsOfAnAlgorithm;
    const auto tiles = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
    const int64_t blocks = tiles(shape.m, 128) * tiles(shape.n, 256);  // cuBLASLt's largest tile
    const int all = shape.multiprocessors > 0 ? shape.multiprocessors : engine.multiprocessors();
    const int64_t beside = std::clamp<int64_t>(all / blocks, 1, engine.queue().beside);
    if (beside > 1) shape.multiprocessors = static_cast<int>(all / beside);
}

/// Multiplies by cuBLASLt, if it can.
bool multiply_by_library(const CallSite& at, const Product& p) {
    if (!may_exist(p)) return false;
    Context& ctx = at;
    Engine& engine = ctx.cuda();
    Engine::State& state = engine.state();
    ProductShape shape = ProductShape::of(p, engine);
    if (shape.k == 0) return false;
    const int64_t m = shape.m, k = shape.k;
    if (!p.transpose_a) shape.m = ctx.whole_rows(m);
    if (engine.queue().rows_vary) share_gpu(shape, p.transpose_a, engine);
    auto whole = state.products.find(shape);
    if (whole == state.products.end()) {
        ProductPlan plan(state.blas, shape, state.choices.find(shape));
        whole = state.products.emplace(shape, std::move(plan)).first;
    }
    const Engine::Queue& queue = engine.queue();
    if (shape.m == m && shape.k == k) return whole->second.run(state.blas, p, queue);
    auto& plans = state.pieces[shape];
    if (plans.size() > kMostPiecePlans) plans.clear();
    auto plan = plans.find({m, k});
    if (plan == plans.end()) {
        plan = plans.emplace(std::pair(m, k), ProductPlan(state.blas, whole->second, m, k)).first;
    }
    return plan->second.run(state.blas, p, queue);
}

/// A product cut in two along rows, columns or terms.
struct Cut {
    Product first, rest;
};

/// Where rows of an operand or of the result do not end with a whole vector, cuBLASLt runs kernels
/// that load single elements: 9.5 instead of 2 ms for the 50257 terms of GPT-2's dX (H200, 13.1).
/// So a product whose k, n or m is no multiple of kVector and lies along a row is computed as two.
std::optional<Cut> cut_to_vectors(const Product& p) {
    const int64_t m = p.c.rows, n = p.c.cols, k = p.transpose_a ? p.a.rows : p.a.cols;
    const auto odd = [](int64_t size) { return size % kVector != 0 && size >= kFewestCut; };
    if (p.batch != 1) return {};
    const auto columns_of = [](auto matrix, bool transposed, int64_t begin, int64_t count) {
        if (!matrix) return matrix;
        return transposed ? matrix.row_range(begin, count) : matrix.column_range(begin, count);
    };
    const auto rows_of = [&](auto matrix, bool transposed, int64_t begin, int64_t count) {
        return columns_of(matrix, !transposed, begin, count);
    };
    const auto halves = [&](int64_t size, auto&& part) {
        const int64_t whole = size - size % kVector;
        return Cut{part(int64_t{0}, whole), part(whole, size - whole)};
    };
    // The second part of a sum is added to the first, which must not be rounded before that.
    if (odd(k) && (!p.transpose_a || p.transpose_b) && p.c.dtype == DType::fp32) {
        return halves(k, [&](int64_t begin, int64_t count) {
            Product part = p;
            part.a = columns_of(p.a, p.transpose_a, begin, count);
            part.b = rows_of(p.b, p.transpose_b, begin, count);
            if (begin > 0) {
                part.addend = p.c;
                part.bias = {};
            }
            return part;
        });
    }
    if (odd(n)) {
        return halves(n, [&](int64_t begin, int64_t count) {
            Product part = p;
            part.b = columns_of(p.b, p.transpose_b, begin, count);
            part.c = p.c.column_range(begin, count);
            part.addend = columns_of(p.addend, false, begin, count);
            part.bias = columns_of(p.bias, false, begin, count);
            return part;
        });
    }
    if (odd(m) && p.transpose_a) {
        return halves(m, [&](int64_t begin, int64_t count) {
            Product part = p;
            part.a = rows_of(p.a, p.transpose_a, begin, count);
            part.c = p.c.row_range(begin, count);
            part.addend = rows_of(p.addend, false, begin, count);
            return part;
        });
    }
    return {};
}

/// try_multiply() for a product that has been checked.
bool multiply_and_count(const CallSite& ctx, const Product& p) {
    if (empty(p)) return true;
    CudaCounters& counters = ctx.cuda().counters();
    if (!multiply_by_library(ctx, p)) {
        if (p.bias || p.epilogue != Epilogue::none) ++counters.refused_epilogues;
        return false;
    }
    ++counters.library_products;
    check_call(ctx, [&] { return describe(ProductShape::of(p, ctx.cuda())); });
    return true;
}

}  // namespace

bool try_multiply(CallSite ctx, const Product& p) {
    require_product(p);
    return multiply_and_count(ctx, p);
}

void multiply(CallSite ctx, const Product& p) {
    require(p.epilogue == Epilogue::none, "a product without epilogue");
    require_product(p);
    if (const std::optional<Cut> cut = cut_to_vectors(p)) {
        multiply(ctx, cut->first);
        multiply(ctx, cut->rest);
        return;
    }
    if (multiply_and_count(ctx, p)) return;
    if (p.bias && p.c.dtype == DType::fp32) {
        Product plain = p;
        plain.bias = {};
        if (multiply_and_count(ctx, plain)) {
            const ConstTensor everywhere(p.bias.data, p.c.rows, p.c.cols, 0, p.bias.dtype);
            add(ctx, p.c, everywhere, p.c);
            return;
        }
    }
    ++ctx.cuda().counters().tiled_products;
    tiled_gemm(ctx, p);
}

void gemm(CallSite ctx, ConstTensor a, bool transpose_a, ConstTensor b, bool transpose_b, Tensor c,
          bool accumulate, ConstTensor bias) {
    require(!accumulate || c.dtype == DType::fp32, "an fp32 c where it is accumulated into");
    Product product{a, transpose_a, b, transpose_b, c, {}, bias};
    if (accumulate) product.addend = c;
    multiply(ctx, product);
}

}  // namespace vocabpipe::kernels::cuda
