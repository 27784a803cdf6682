// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/grouped_launch.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/grouped_arrays.hpp"
#include "kernels/cuda/grouped_gemm.hpp"
#include "kernels/cuda/launch_errors.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// Alignment that copies of tiles need for addresses and for the bytes between rows.
constexpr int64_t kTileAlignment = 16;
constexpr int64_t kMostExperts = 65535;  ///< a grid's second dimension

bool suits_tiles(ConstTensor t, DType type) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    return t.dtype == type && reinterpret_cast<uintptr_t>(t.data) % kTileAlignment == 0 &&
           t.stride * size_of(type) % kTileAlignment == 0 && t.rows <= kMost && t.cols <= kMost;
}

GroupedOperand rows_of_experts(ConstTensor t) {
    return {.data = static_cast<std::byte*>(const_cast<void*>(t.data)),
            .per_row = t.stride * size_of(t.dtype),
            .stride = t.stride};
}
/// `rows` rows of t for every expert.
GroupedOperand matrix_of_experts(ConstTensor t, int64_t rows) {
    return {.data = static_cast<std::byte*>(const_cast<void*>(t.data)),
            .per_expert = rows * t.stride * size_of(t.dtype),
            .stride = t.stride};
}

/// Memory of a launch's arrays, and of the rest.
struct GroupedMemory {
    std::span<std::byte> arrays, rest;
};

/// Empty if the lane's workspace is too small.
GroupedMemory grouped_memory(const Engine& engine, GroupedProduct product, int64_t experts,
                             int multiprocessors) {
    const auto arrays = static_cast<size_t>(GroupedArrays::bytes(experts));
    const auto rest = static_cast<size_t>(grouped_gemm_workspace_bytes(product, multiprocessors));
    const std::span<std::byte> all = engine.workspace();
    if (all.size() < arrays + rest) return {};
    return {all.first(arrays), all.subspan(arrays)};
}

bool run_groups(const CallSite& ctx, GroupedProduct product, const GroupedProblem& problem,
                std::span<const RowRange> rows, bool accumulate) {
    Engine& engine = ctx.cuda();
    const int64_t experts = std::ssize(rows);
    if (!engine.groups_experts().value_or(grouped_gemm_runs_unasked()) ||
        !grouped_gemm_runs_on(engine.compute_capability()) || experts > kMostExperts) {
        return false;
    }
    const int left = engine.product_multiprocessors();
    const int multiprocessors = left > 0 ? left : engine.multiprocessors();
    const GroupedMemory memory = grouped_memory(engine, product, experts, multiprocessors);
    if (memory.arrays.empty()) return false;

    const auto has_no_rows = [](const RowRange& of_expert) { return of_expert.size() == 0; };
    const bool clear =
        problem.rows_are_terms && !accumulate && std::any_of(rows.begin(), rows.end(), has_no_rows);
    const bool multiply = !std::all_of(rows.begin(), rows.end(), has_no_rows);
    if ((!clear && !multiply) || problem.n == 0 || (problem.rows_are_terms && problem.m == 0)) {
        return true;
    }
    const GroupedArrays arrays = GroupedArrays::at(memory.arrays, experts);
    prepare_groups(ctx, problem, rows, arrays);
    if (clear) clear_groups_without_rows(ctx, problem, arrays);
    if (!multiply) return true;
    grouped_gemm(ctx, product, arrays, accumulate, multiprocessors, memory.rest);
    ++engine.counters().grouped_products;
    check_call(ctx, [&] {
        return "grouped product of " + std::to_string(experts) + " experts, m " +
               (problem.rows_are_terms ? std::to_string(problem.m) : "their rows") + ", n " +
               std::to_string(problem.n) + ", k " +
               (problem.rows_are_terms ? "their rows" : std::to_string(problem.k));
    });
    return true;
}

int32_t size_as_int(int64_t size) {
    return static_cast<int32_t>(size);
}

}  // namespace

bool try_grouped_forward(CallSite ctx, ConstTensor x, ConstTensor w, std::span<const RowRange> rows,
                         int64_t out, int64_t first_column, Tensor y) {
    if (!suits_tiles(x, DType::bf16) || !suits_tiles(w, DType::bf16) ||
        !suits_tiles(y, DType::bf16) || x.cols == 0) {
        return false;
    }
    const GroupedProblem problem{
        .a = rows_of_experts(x),
        .b = matrix_of_experts(w.row_range(first_column, w.rows - first_column), out),
        .d = rows_of_experts(y),
        .n = size_as_int(y.cols),
        .k = size_as_int(x.cols)};
    return run_groups(ctx, GroupedProduct::forward, problem, rows, false);
}

bool try_grouped_input(CallSite ctx, ConstTensor dy, ConstTensor w, std::span<const RowRange> rows,
                       Tensor dx) {
    if (!suits_tiles(dy, DType::bf16) || !suits_tiles(w, DType::bf16) ||
        !suits_tiles(dx, DType::bf16) || dy.cols == 0) {
        return false;
    }
    const GroupedProblem problem{.a = rows_of_experts(dy),
                                 .b = matrix_of_experts(w, dy.cols),
                                 .d = rows_of_experts(dx),
                                 .n = size_as_int(dx.cols),
                                 .k = size_as_int(dy.cols)};
    return run_groups(ctx, GroupedProduct::input, problem, rows, false);
}

bool try_grouped_weight(CallSite ctx, ConstTensor dy, ConstTensor x, std::span<const RowRange> rows,
                        Tensor dw, bool accumulate) {
    if (!suits_tiles(dy, DType::bf16) || !suits_tiles(x, DType::bf16) ||
        !suits_tiles(dw, DType::fp32)) {
        return false;
    }
    const GroupedProblem problem{.a = rows_of_experts(dy),
                                 .b = rows_of_experts(x),
                                 .d = matrix_of_experts(dw, dy.cols),
                                 .m = size_as_int(dy.cols),
                                 .n = size_as_int(x.cols),
                                 .rows_are_terms = true};
    return run_groups(ctx, GroupedProduct::weight, problem, rows, accumulate);
}

}  // namespace vocabpipe::kernels::cuda
