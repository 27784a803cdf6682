// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/expert_checks.hpp"
#include "kernels/host/dot.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// The weight of a slot; 1 without weights.
float weight_of(ConstTensor weights, int64_t slot) {
    if (!weights) return 1;
    return weights.as<float>()[slot / weights.cols * weights.stride + slot % weights.cols];
}

/// y[n] = residual[n], or 0, plus what add(n, sum) adds in fp32. `work`: `elements` of
/// parallel_ranges().
template <typename T, typename Add>
void sum_rows(Context& ctx, int64_t work, ConstTensor residual, const Add& add, Tensor y) {
    parallel_ranges(ctx, y.rows, work, [&](int64_t begin, int64_t end) {
        std::vector<float> sums(static_cast<size_t>(y.cols));
        float* const sum = sums.data();
        for (int64_t n = begin; n < end; ++n) {
            if (residual) {
                const T* from = residual.as<T>() + n * residual.stride;
#pragma omp simd
                for (int64_t i = 0; i < y.cols; ++i) sum[i] = to_float(from[i]);
            } else {
                std::fill_n(sum, y.cols, 0.0F);
            }
            add(n, sum);
            T* to = y.as<T>() + n * y.stride;
#pragma omp simd
            for (int64_t i = 0; i < y.cols; ++i) to[i] = from_float<T>(sum[i]);
        }
    });
}

}  // namespace

void sort_by_expert(Context& /*ctx*/, std::span<const int32_t> choice, std::span<int32_t> row_begin,
                    std::span<int32_t> row_of_slot, std::span<int32_t> slot_of_row) {
    require_expert_order(choice, row_begin, row_of_slot, slot_of_row);
    const size_t experts = row_begin.size() - 1;
    std::fill(row_begin.begin(), row_begin.end(), 0);
    for (const int32_t expert : choice) {
        require(expert >= 0 && static_cast<size_t>(expert) < experts, "experts that exist");
        ++row_begin[static_cast<size_t>(expert) + 1];
    }
    for (size_t expert = 0; expert < experts; ++expert) row_begin[expert + 1] += row_begin[expert];
    std::vector<int32_t> next(row_begin.begin(), row_begin.end() - 1);
    for (size_t slot = 0; slot < choice.size(); ++slot) {
        const int32_t row = next[static_cast<size_t>(choice[slot])]++;
        row_of_slot[slot] = row;
        slot_of_row[static_cast<size_t>(row)] = static_cast<int32_t>(slot);
    }
}

void gather_rows(Context& ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                 int64_t per_token, ConstTensor weights, Tensor y) {
    require_gather_rows(x, slot_of_row, per_token, weights, y);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, y.rows, y.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const int64_t slot = slot_of_row[static_cast<size_t>(row)];
                const T* from = x.as<T>() + slot / per_token * x.stride;
                T* to = y.as<T>() + row * y.stride;
                if (!weights) {
                    std::copy(from, from + y.cols, to);
                    continue;
                }
                const float weight = weight_of(weights, slot);
#pragma omp simd
                for (int64_t i = 0; i < y.cols; ++i)
                    to[i] = from_float<T>(weight * to_float(from[i]));
            }
        });
    });
}

void combine_rows(Context& ctx, ConstTensor rows, std::span<const int32_t> row_of_slot,
                  int64_t per_token, ConstTensor weights, ConstTensor residual, Tensor y) {
    require_combine_rows(rows, row_of_slot, per_token, weights, residual, y);
    with_type(rows.dtype, [&]<typename T>() {
        const auto add = [&](int64_t n, float* sum) {
            for (int64_t slot = n * per_token; slot < (n + 1) * per_token; ++slot) {
                const int64_t row = row_of_slot[static_cast<size_t>(slot)];
                if (row < 0) continue;
                const T* from = rows.as<T>() + row * rows.stride;
                const float weight = weight_of(weights, slot);
#pragma omp simd
                for (int64_t i = 0; i < y.cols; ++i) sum[i] += weight * to_float(from[i]);
            }
        };
        sum_rows<T>(ctx, y.size() * per_token, residual, add, y);
    });
}

void combine_parts(Context& ctx, std::span<const ConstTensor> parts,
                   std::span<const int32_t> row_of_slot, ConstTensor residual, Tensor y) {
    require_combine_parts(parts, row_of_slot, residual, y);
    with_type(y.dtype, [&]<typename T>() {
        const auto add = [&](int64_t n, float* sum) {
            for (size_t part = 0; part < parts.size(); ++part) {
                const int64_t row = row_of_slot[static_cast<size_t>(n) * parts.size() + part];
                if (row < 0) continue;
                const T* from = parts[part].as<T>() + row * parts[part].stride;
#pragma omp simd
                for (int64_t i = 0; i < y.cols; ++i) sum[i] += to_float(from[i]);
            }
        };
        sum_rows<T>(ctx, y.size() * std::ssize(parts), residual, add, y);
    });
}

void combine_backward_weights(Context& ctx, ConstTensor dy, ConstTensor rows,
                              std::span<const int32_t> slot_of_row, Tensor dweights) {
    require_row_products(dy, rows, slot_of_row, dweights);
    with_type(dy.dtype, [&]<typename T>() {
        parallel_ranges(ctx, rows.rows, rows.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const int64_t slot = slot_of_row[static_cast<size_t>(row)];
                dweights
                    .as<float>()[slot / dweights.cols * dweights.stride + slot % dweights.cols] =
                    dot(dy.as<T>() + row * dy.stride, rows.as<T>() + row * rows.stride, rows.cols);
            }
        });
    });
}

void scale_rows(Context& ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                ConstTensor weights, Tensor y) {
    require_scale_rows(x, slot_of_row, weights, y);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, y.rows, y.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const float weight = weight_of(weights, slot_of_row[static_cast<size_t>(row)]);
                const T* from = x.as<T>() + row * x.stride;
                T* to = y.as<T>() + row * y.stride;
#pragma omp simd
                for (int64_t i = 0; i < y.cols; ++i)
                    to[i] = from_float<T>(weight * to_float(from[i]));
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host
