// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/gemm.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/engine.hpp"
#include "kernels/host/gemm_operands.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/host/row_product.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// A cut along m reads b once more per part (along n: a). Parts of this size make that negligible.
constexpr int64_t kSmallestPart = 1024;

/// Chooses the number of threads along the rows of c, the others being along its columns: the grid
/// with the most square shares, as a share reads m_share + n_share rows of k elements.
int64_t threads_along_rows(int64_t m, int64_t n, int64_t threads) {
    int64_t best = 0;
    double best_cost = 0.0;
    for (int64_t rows = 1; rows <= threads; ++rows) {
        const int64_t columns = threads / rows;
        if (rows * columns != threads) continue;
        if ((rows > 1 && m / rows < kSmallestShare) ||
            (columns > 1 && n / columns < kSmallestShare)) {
            continue;
        }
        const double cost = static_cast<double>(m) / static_cast<double>(rows) +
                            static_cast<double>(n) / static_cast<double>(columns);
        if (best == 0 || cost < best_cost) {
            best = rows;
            best_cost = cost;
        }
    }
    return best;
}

/// One product on all threads, each of which computes its share of c.
void product(Context& ctx, const Operands& o) {
    auto& engine = ctx.engine();
    int64_t threads = o.flop() < kParallelFlop ? 1 : ctx.threads();
    int64_t by_rows = 0;
    while ((by_rows = threads_along_rows(o.c.rows, o.c.cols, threads)) == 0) --threads;
    if (threads == 1) {
        run_matmul(engine, o.shape(), 0, o.a.data, o.b.data, o.c.data, o.bias.data);
        return;
    }
    std::vector<Operands> shares;
    const int64_t by_columns = threads / by_rows;
    for (int64_t row = 0; row < by_rows; ++row) {
        const int64_t top = boundary(o.c.rows, row, by_rows);
        const Operands strip = o.rows(top, boundary(o.c.rows, row + 1, by_rows) - top);
        for (int64_t column = 0; column < by_columns; ++column) {
            const int64_t left = boundary(o.c.cols, column, by_columns);
            shares.push_back(
                strip.columns(left, boundary(o.c.cols, column + 1, by_columns) - left));
        }
    }
    const auto team = static_cast<int>(threads);
#pragma omp parallel for num_threads(team) schedule(static, 1)
    for (size_t i = 0; i < shares.size(); ++i) {
        const Operands& share = shares[i];
        run_matmul(engine, share.shape(), omp_get_thread_num(), share.a.data, share.b.data,
                   share.c.data, share.bias.data);
    }
}

/// Cuts m or n so that communication is polled every few milliseconds.
void product_in_parts(Context& ctx, const Operands& o) {
    const double budget = kFlopPerPart * ctx.threads() * (o.a.dtype == DType::bf16 ? 2 : 1);
    const bool by_rows = o.c.rows >= o.c.cols;
    const int64_t length = std::max(o.c.rows, o.c.cols);
    const auto wanted = static_cast<int64_t>(std::ceil(o.flop() / budget));
    const int64_t parts =
        std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, length / kSmallestPart));
    for (int64_t part = 0; part < parts; ++part) {
        if (part > 0) ctx.poll();
        const int64_t begin = boundary(length, part, parts);
        const int64_t count = boundary(length, part + 1, parts) - begin;
        product(ctx, by_rows ? o.rows(begin, count) : o.columns(begin, count));
    }
}

/// c = bias or 0, for k == 0.
void fill(Context& ctx, Tensor c, ConstTensor bias) {
    for (int64_t row = 0; row < c.rows; ++row) {
        const Tensor target = c.row_range(row, 1);
        if (bias) {
            convert(ctx, bias, target);
        } else {
            std::memset(target.data, 0, static_cast<size_t>(target.bytes()));
        }
    }
}

}  // namespace

void gemm(Context& ctx, ConstTensor a, bool transpose_a, ConstTensor b, bool transpose_b, Tensor c,
          bool accumulate, ConstTensor bias) {
    const int64_t k = transpose_a ? a.rows : a.cols;
    require((transpose_a ? a.cols : a.rows) == c.rows, "rows of op(a) == rows of c");
    require((transpose_b ? b.rows : b.cols) == c.cols, "columns of op(b) == columns of c");
    require((transpose_b ? b.cols : b.rows) == k, "columns of op(a) == rows of op(b)");
    require(!bias || has_shape(bias, 1, c.cols), "bias of shape (1, n)");
    require(a.dtype == b.dtype && a.dtype != DType::fp64, "a and b both fp32 or both bf16");
    require(!accumulate || c.dtype == DType::fp32, "an fp32 c where it is accumulated into");
    if (c.size() == 0) return;
    if (k == 0) {
        if (!accumulate || bias) {
            require(!accumulate, "k > 0 where bias is added to c");
            fill(ctx, c, bias);
        }
        return;
    }
    auto& engine = ctx.engine();
    engine.bind_thread();
    require(!bias || bias.dtype == DType::fp32 || bias.dtype == a.dtype,
            "bias fp32 or of a's type");
    if (c.rows == 1 && !transpose_a && transpose_b && !accumulate) {
        return row_product(ctx, a, b, bias, c);
    }

    // No kernel takes fp32 operands with a bf16 result or a bf16 bias.
    if (a.dtype == DType::fp32 && c.dtype == DType::bf16) {
        const auto bytes = c.size() * size_of(DType::fp32);
        const Tensor wide(engine.conversion().at_least(bytes), c.rows, c.cols, DType::fp32);
        gemm(ctx, a, transpose_a, b, transpose_b, wide, false, bias);
        convert(ctx, wide, c);
        return;
    }

    const Operands operands{a, transpose_a, b, transpose_b, c, accumulate, bias};
    const int64_t part = c.dtype == DType::fp32 ? terms_per_part(k) : k;
    for (int64_t begin = 0; begin < k; begin += part) {
        if (begin > 0) ctx.poll();
        product_in_parts(ctx, operands.terms(begin, std::min(part, k - begin)));
    }
}

}  // namespace vocabpipe::kernels::host
