// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/gemm_each.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/host/engine_state.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// What gemm() does not compute as one product of oneDNN per part of k.
bool is_special(const Operands& o) {
    const bool one_row = o.c.rows == 1 && !o.transpose_a && o.transpose_b && !o.accumulate;
    return one_row || o.k() == 0 || (o.a.dtype == DType::fp32 && o.c.dtype == DType::bf16);
}

/// A place in a list of products: before this row of c of this product.
struct Place {
    size_t product = 0;
    int64_t row = 0;
};

/// Cuts a list of products into chunks of equal work.
class WorkList {
public:
    explicit WorkList(std::vector<Operands> products) : products_(std::move(products)) {
        begin_.reserve(products_.size());
        for (const Operands& product : products_) {
            begin_.push_back(flop_);
            flop_ += product.flop();
        }
    }
    [[nodiscard]] double flop() const { return flop_; }

    /// Rows of c are cut where gemm() may cut them.
    [[nodiscard]] Place boundary(int64_t chunk, int64_t chunks) const {
        if (chunk == chunks) return {products_.size(), 0};
        const double work = flop_ * static_cast<double>(chunk) / static_cast<double>(chunks);
        const auto after = std::upper_bound(begin_.begin(), begin_.end(), work);
        const auto product = static_cast<size_t>(after - begin_.begin()) - 1;
        const int64_t rows = products_[product].c.rows;
        const double share = (work - begin_[product]) / products_[product].flop();
        constexpr int64_t kMultiple = kSmallestShare / 2;
        const auto row =
            static_cast<int64_t>(share * static_cast<double>(rows)) / kMultiple * kMultiple;
        if (row < kSmallestShare) return {product, 0};
        if (rows - row < kSmallestShare) return {product + 1, 0};
        return {product, row};
    }

    /// The products between two places.
    [[nodiscard]] std::vector<Operands> between(Place from, Place to) const {
        std::vector<Operands> pieces;
        for (; from.product <= to.product && from.product < products_.size();
             from = {from.product + 1, 0}) {
            const Operands& product = products_[from.product];
            const int64_t end = from.product == to.product ? to.row : product.c.rows;
            if (end > from.row) pieces.push_back(product.rows(from.row, end - from.row));
        }
        return pieces;
    }

private:
    std::vector<Operands> products_;
    std::vector<double> begin_;
    double flop_ = 0;
};

/// One product of oneDNN, and what it multiplies.
struct Part {
    Operands operands;
    Matmul* matmul;
};
/// What one thread computes without interruption.
using Chunk = std::vector<Part>;

/// A product whose weights or gradients come from memory, as those of experts do, is faster in
/// pieces about this wide, unless b is transposed.
constexpr int64_t kWidth = 512;

/// Cut along k where gemm() cuts sums.
Chunk parts_of(const std::vector<Operands>& pieces) {
    Chunk chunk;
    for (const Operands& piece : pieces) {
        const int64_t k = piece.k(), n = piece.c.cols;
        const int64_t strips = piece.transpose_b ? 1 : (n + kWidth - 1) / kWidth;
        const int64_t terms =
            piece.c.dtype == DType::fp32 ? terms_per_part(piece.a.dtype, piece.transpose_b, k) : k;
        for (int64_t i = 0; i < strips; ++i) {
            const int64_t left = boundary(n, i, strips);
            const Operands strip = piece.columns(left, boundary(n, i + 1, strips) - left);
            for (int64_t begin = 0; begin < k; begin += terms) {
                chunk.push_back({strip.terms(begin, std::min(terms, k - begin)), nullptr});
            }
        }
    }
    return chunk;
}

void prepare(Engine& engine, std::vector<Chunk>& chunks) {
    std::vector<MatmulShape> shapes;
    for (const Chunk& chunk : chunks) {
        for (const Part& part : chunk) shapes.push_back(part.operands.shape());
    }
    const std::vector<Matmul*> matmuls = prepare_matmuls(engine, shapes);
    auto next = matmuls.begin();
    for (Chunk& chunk : chunks) {
        for (Part& part : chunk) part.matmul = *next++;
    }
}

void run(Engine& engine, const Chunk& chunk, int thread) {
    for (const auto& [o, matmul] : chunk) {
        run_matmul(engine, *matmul, thread, o.a.data, o.b.data, o.c.data);
    }
}

}  // namespace

void gemm_each(Context& ctx, std::span<const Operands> products) {
    auto& engine = ctx.engine();
    engine.bind_thread();
    limit_matmuls(engine);
    std::vector<Operands> ordinary;
    for (const Operands& o : products) {
        if (o.c.size() == 0) continue;
        if (is_special(o)) {
            ctx.poll();
            gemm(ctx, o.a, o.transpose_a, o.b, o.transpose_b, o.c, o.accumulate);
        } else {
            ordinary.push_back(o);
        }
    }
    if (ordinary.empty()) return;
    const double budget = kFlopPerPart * (ordinary.front().a.dtype == DType::bf16 ? 2 : 1);
    const WorkList list(std::move(ordinary));
    const auto threads = static_cast<int>(
        std::clamp<int64_t>(static_cast<int64_t>(list.flop() / kParallelFlop), 1, ctx.threads()));
    const auto rounds = static_cast<int64_t>(std::ceil(list.flop() / (budget * threads)));
    const int64_t chunks = rounds * threads;
    for (int64_t first = 0; first < chunks; first += threads) {
        if (first > 0) ctx.poll();
        std::vector<Chunk> own;
        for (int64_t chunk = first; chunk < first + threads; ++chunk) {
            own.push_back(parts_of(
                list.between(list.boundary(chunk, chunks), list.boundary(chunk + 1, chunks))));
        }
        prepare(engine, own);
        const OneThreadProducts guard(engine);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (size_t i = 0; i < own.size(); ++i) run(engine, own[i], omp_get_thread_num());
    }
}

}  // namespace vocabpipe::kernels::host
