// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/elements.hpp"
#include "kernels/reference/operators.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// The weight of a slot; 1 without weights.
double weight_of(ConstTensor weights, int64_t slot) {
    return weights ? get(weights, slot / weights.cols, slot % weights.cols) : 1.0;
}

}  // namespace

void sort_by_expert(Context& ctx, std::span<const int32_t> choice, std::span<int32_t> row_begin,
                    std::span<int32_t> row_of_slot, std::span<int32_t> slot_of_row) {
    size_t row = 0;
    for (size_t expert = 0; expert + 1 < row_begin.size(); ++expert) {
        row_begin[expert] = static_cast<int32_t>(row);
        for (size_t slot = 0; slot < choice.size(); ++slot) {
            if (choice[slot] != static_cast<int32_t>(expert)) continue;
            row_of_slot[slot] = static_cast<int32_t>(row);
            slot_of_row[row++] = static_cast<int32_t>(slot);
        }
    }
    row_begin.back() = static_cast<int32_t>(row);
    ctx.poll();
}

void gather_rows(Context& ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                 int64_t per_token, ConstTensor weights, Tensor y) {
    for (int64_t row = 0; row < y.rows; ++row) {
        const int64_t slot = slot_of_row[static_cast<size_t>(row)];
        for (int64_t i = 0; i < y.cols; ++i) {
            set(y, row, i, weight_of(weights, slot) * get(x, slot / per_token, i));
        }
    }
    ctx.poll();
}

void combine_rows(Context& ctx, ConstTensor rows, std::span<const int32_t> row_of_slot,
                  int64_t per_token, ConstTensor weights, ConstTensor residual, Tensor y) {
    for (int64_t n = 0; n < y.rows; ++n) {
        for (int64_t i = 0; i < y.cols; ++i) {
            double sum = residual ? get(residual, n, i) : 0.0;
            for (int64_t slot = n * per_token; slot < (n + 1) * per_token; ++slot) {
                const int64_t row = row_of_slot[static_cast<size_t>(slot)];
                if (row >= 0) sum += weight_of(weights, slot) * get(rows, row, i);
            }
            set(y, n, i, sum);
        }
    }
    ctx.poll();
}

void combine_parts(Context& ctx, std::span<const ConstTensor> parts,
                   std::span<const int32_t> row_of_slot, ConstTensor residual, Tensor y) {
    for (int64_t n = 0; n < y.rows; ++n) {
        for (int64_t i = 0; i < y.cols; ++i) {
            double sum = residual ? get(residual, n, i) : 0.0;
            for (size_t part = 0; part < parts.size(); ++part) {
                const int64_t row = row_of_slot[static_cast<size_t>(n) * parts.size() + part];
                if (row >= 0) sum += get(parts[part], row, i);
            }
            set(y, n, i, sum);
        }
    }
    ctx.poll();
}

void combine_backward_weights(Context& ctx, ConstTensor dy, ConstTensor rows,
                              std::span<const int32_t> slot_of_row, Tensor dweights) {
    for (int64_t row = 0; row < rows.rows; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < rows.cols; ++i) sum += get(dy, row, i) * get(rows, row, i);
        const int64_t slot = slot_of_row[static_cast<size_t>(row)];
        set(dweights, slot / dweights.cols, slot % dweights.cols, sum);
    }
    ctx.poll();
}

void scale_rows(Context& ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                ConstTensor weights, Tensor y) {
    for (int64_t row = 0; row < y.rows; ++row) {
        const double weight = weight_of(weights, slot_of_row[static_cast<size_t>(row)]);
        for (int64_t i = 0; i < y.cols; ++i) set(y, row, i, weight * get(x, row, i));
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
