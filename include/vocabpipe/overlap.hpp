// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tile_map.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Operations that compute while their rows travel.
enum class OverlapOp : uint8_t {
    /// Every member holds a part of the rows and multiplies all rows; rows travel before their
    /// product.
    all_gather_gemm,
    /// Every member multiplies all rows; each row's partial products travel to the row's member.
    gemm_reduce_scatter,
    /// A pass whose input arrives in pieces while it runs (a broadcast before S).
    stream_in,
    /// A pass makes rows that the next pass, on another rank, uses as they arrive (a hop between
    /// stages). Each of the two takes `compute_ns`.
    hop,
    /// Rows travel to the member that has their experts, equally many from each member, and are
    /// multiplied there. A member's rows in the map are those that it sends to each other member.
    dispatch_gemm,
    /// The experts' output goes back by panels of columns, the pieces of the map. Each panel goes
    /// to all members when its product over all rows is done.
    gemm_combine,
    /// Every member gathers the keys and values of all by panels of heads, the pieces of the map,
    /// and attends with its own queries. Attention of a panel begins when the panels of all members
    /// are there.
    gather_attention,
};
/// Whether it is an operation of ranks that share experts.
[[nodiscard]] constexpr bool is_of_experts(OverlapOp op) {
    return op == OverlapOp::dispatch_gemm || op == OverlapOp::gemm_combine;
}
inline constexpr std::array kOverlapOps{OverlapOp::all_gather_gemm, OverlapOp::gemm_reduce_scatter,
                                        OverlapOp::stream_in,       OverlapOp::hop,
                                        OverlapOp::dispatch_gemm,   OverlapOp::gemm_combine,
                                        OverlapOp::gather_attention};
/// The name for bench_overlap's --op.
[[nodiscard]] std::string_view to_string(OverlapOp op);

/// Cost of a piece on a link: it occupies the receiving rank's link for `piece_ns` plus the time of
/// its bytes, and has arrived `latency_ns` later.
struct Link {
    double bytes_per_ns = 1;  ///< GB/s
    int64_t latency_ns = 0;   ///< from the last byte's departure to its arrival
    int64_t piece_ns = 0;     ///< time of the link for every piece, besides its bytes
};

/// The order in which a member multiplies.
enum class ComputeOrder : uint8_t {
    /// By availability or need: own rows, then members in the order in which their rows arrive; for
    /// a reduce-scatter rows of rank + 1 first, own last.
    ring,
    /// Rows in ascending order on every member, as one product of all rows computes them.
    natural,
};

/// Options equal on all ranks.
struct OverlapOptions {
    int64_t row_bytes = 1;                    ///< of a row that travels
    ComputeOrder order = ComputeOrder::ring;  ///< of products
    int64_t piece_ns = 0;                     ///< time of every product besides its rows
};

/// Times of one operation on one rank, or of all: virtual, in ns.
struct OverlapTimes {
    int64_t compute_ns = 0;     ///< computation only; of a hop: on a link that takes no time
    int64_t link_ns = 0;        ///< link only
    int64_t blocking_ns = 0;    ///< one after the other: whole tensors, nothing by pieces
    int64_t overlapped_ns = 0;  ///< until all is computed and has arrived

    /// Share of the link's time that computing hides: (compute + link - overlapped) / link; 1 where
    /// nothing travels, negative where pieces cost more than they hide.
    [[nodiscard]] double hidden() const {
        if (link_ns == 0) return 1;
        return static_cast<double>(compute_ns + link_ns - overlapped_ns) /
               static_cast<double>(link_ns);
    }
};

/// Times of every member, by rank. `compute_ns`: all rows of the map on one member; a product takes
/// its share by rows. Streams have one member, whose rows are the tensor. Pieces travel in ring
/// order: step (o, piece) from rank to rank + o, o = 1 .. members - 1; a rank sends, and receives,
/// one piece at a time; panels go one after the other, each in that order. One product computes all
/// own rows, or all pieces of a member that have arrived; pieces of a stream, pieces that leave,
/// and panels take one product each. Adding up a reduce-scatter or a combine costs nothing here.
/// Throws UsageError for negative times, a rate that is not positive, or a stream of several
/// members.
[[nodiscard]] std::vector<OverlapTimes> overlap_of_ranks(OverlapOp op, const TileMap& map,
                                                         int64_t compute_ns, const Link& link,
                                                         const OverlapOptions& options = {});
/// The times of the slowest member.
[[nodiscard]] OverlapTimes overlap(OverlapOp op, const TileMap& map, int64_t compute_ns,
                                   const Link& link, const OverlapOptions& options = {});

/// The operation for which choose_pieces() chooses.
struct OverlapShape {
    OverlapOp op = OverlapOp::all_gather_gemm;  ///< what overlaps
    int64_t rows = 0;                           ///< of all members
    int members = 1;                            ///< of the team
    int64_t compute_ns = 0;                     ///< of all rows on one member
};

/// Pieces of each member, and what they give.
struct PieceChoice {
    int pieces = 1;      ///< of each member
    OverlapTimes times;  ///< of the slowest member with them
};

/// The candidate with the shortest overlapped time, the smallest one on ties; 1 where overlap does
/// not pay, if 1 is a candidate. Throws UsageError without candidates.
[[nodiscard]] PieceChoice choose_pieces(const OverlapShape& shape, const Link& link,
                                        const OverlapOptions& options,
                                        std::span<const int> candidates);

/// A product of a team: rows x inner by inner x columns, columns of one member.
struct TileShape {
    OverlapOp op = OverlapOp::all_gather_gemm;  ///< what overlaps
    int64_t rows = 0;                           ///< of all members
    int64_t inner = 0;                          ///< summed over
    int64_t columns = 0;                        ///< of the product
    int members = 1;                            ///< of the team
    int element_bytes = 4;  ///< of inputs; for a reduce-scatter or a hop of products
};

/// Speeds of a machine.
struct TileRates {
    double flops_per_ns = 1;  ///< GFLOP/s of one rank
    int64_t piece_ns = 0;     ///< cost of a product besides its FLOPs (a launch, a cold cache)
    Link link;                ///< of each rank
};

/// choose_pieces() for a product: 1, 2, 4, ..., 64 pieces.
[[nodiscard]] PieceChoice choose_tiles(const TileShape& shape, const TileRates& rates);

}  // namespace vocabpipe
