// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/overlap_table.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe {

namespace {

double product_of(const MeasuredOverlap& m) {
    return static_cast<double>(m.rows) * static_cast<double>(m.inner) *
           static_cast<double>(m.columns);
}

/// Bytes that the slowest member receives.
double received_bytes(const MeasuredOverlap& m, int members, int element_bytes) {
    const int64_t width = m.op == OverlapOp::gemm_reduce_scatter ? m.columns : m.inner;
    double rows = static_cast<double>(m.rows);
    if (m.op != OverlapOp::stream_in) rows -= rows / members;
    return rows * static_cast<double>(width) * element_bytes;
}

/// Number of products of one rank. In an all-gather it depends on which pieces arrive together;
/// counted as without pieces.
int products(const MeasuredOverlap& m, int members, int pieces) {
    if (m.op == OverlapOp::stream_in) return TileMap::even(m.rows, 1, pieces).pieces(0);
    if (m.op == OverlapOp::all_gather_gemm) return members;
    const TileMap map = TileMap::even(m.rows, members, pieces);
    int count = 1;  // own rows
    for (int member = 1; member < map.members(); ++member) {
        map.each_product(member, [&](int, int) { ++count; });
    }
    return count;
}

}  // namespace

int best_pieces(const MeasuredOverlap& measured) {
    const auto best = std::min_element(
        measured.candidates.begin(), measured.candidates.end(),
        [](const auto& a, const auto& b) { return a.overlapped_ns < b.overlapped_ns; });
    const bool pays =
        best != measured.candidates.end() && best->overlapped_ns < measured.blocking_ns;
    return pays ? best->pieces : 1;
}

TileRates fit_rates(const OverlapTable& table) {
    double flops = 0, compute_ns = 0, bytes = 0, link_ns = 0;
    std::vector<double> prices;
    for (const MeasuredOverlap& m : table.shapes) {
        if (is_of_experts(m.op)) continue;
        flops += 2 * product_of(m);
        compute_ns += static_cast<double>(m.compute_ns);
        bytes += received_bytes(m, table.members, table.element_bytes);
        link_ns += static_cast<double>(m.link_ns);
        const MeasuredOverlap::Candidate& few = m.candidates.front();
        const MeasuredOverlap::Candidate& many = m.candidates.back();
        const int more =
            products(m, table.members, many.pieces) - products(m, table.members, few.pieces);
        if (more <= 0) continue;
        const auto longer = static_cast<double>(many.overlapped_ns - few.overlapped_ns);
        prices.push_back(std::max(0.0, longer / more));
    }
    if (flops == 0) throw UsageError("fit_rates: no shapes; measure at least one");
    TileRates rates{.flops_per_ns = flops / std::max(compute_ns, 1.0),
                    .link = {.bytes_per_ns = bytes / std::max(link_ns, 1.0)}};
    if (!prices.empty()) {
        const auto middle = prices.begin() + static_cast<std::ptrdiff_t>(prices.size() / 2);
        std::nth_element(prices.begin(), middle, prices.end());
        rates.piece_ns = std::llround(*middle);
    }
    return rates;
}

int pieces_for(const OverlapTable& table, const TileShape& shape) {
    const bool stream = shape.op == OverlapOp::stream_in;
    const bool same_team = stream || shape.members == table.members;
    const MeasuredOverlap* nearest = nullptr;
    for (const MeasuredOverlap& m : table.shapes) {
        if (m.op != shape.op || !same_team || shape.element_bytes != table.element_bytes) continue;
        // An equal shape is the smallest one that is large enough.
        if (m.rows < shape.rows || m.inner < shape.inner || m.columns < shape.columns) continue;
        if (nearest == nullptr || product_of(m) < product_of(*nearest)) nearest = &m;
    }
    if (nearest != nullptr) return nearest->pieces;
    TileShape computed = shape;
    if (stream) computed.members = 1;
    return choose_tiles(computed, table.rates).pieces;
}

}  // namespace vocabpipe
