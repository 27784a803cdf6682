// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/overlap.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Measured times of one product of a team: of the slowest rank in its fastest round, in ns.
struct MeasuredOverlap {
    /// Time with one number of pieces.
    struct Candidate {
        int pieces = 1;             ///< of each member, as asked for; panels of a combine
        int64_t overlapped_ns = 0;  ///< products and messages by pieces
        /// Member by member.
        friend bool operator==(const Candidate&, const Candidate&) = default;
    };

    OverlapOp op = OverlapOp::all_gather_gemm;  ///< no hop
    int64_t rows = 0;                   ///< of all members; for experts the mean of a member
    int64_t inner = 0;                  ///< that a member's products sum over
    int64_t columns = 0;                ///< of a member's product
    int64_t compute_ns = 0;             ///< one product of all rows
    int64_t link_ns = 0;                ///< only the exchange
    int64_t blocking_ns = 0;            ///< exchange and product one after the other
    std::vector<Candidate> candidates;  ///< by ascending pieces; at least one
    int pieces = 1;                     ///< the chosen one
    /// Member by member.
    friend bool operator==(const MeasuredOverlap&, const MeasuredOverlap&) = default;
};

/// What overlap costs and saves on one machine: `vocabpipe profile --overlap` writes it.
struct OverlapTable {
    std::string host;     ///< where it was measured
    std::string device;   ///< processor, and threads per rank
    std::string date;     ///< as the caller gives it; empty: not recorded
    std::string command;  ///< command line that measured it

    int members = 2;                      ///< of the team; all ranks of the run
    int element_bytes = 4;                ///< of the elements multiplied and sent
    TileRates rates;                      ///< fitted to the shapes, for shapes not listed
    std::vector<MeasuredOverlap> shapes;  ///< no two alike
};

/// The candidate with the shortest overlapped time, the smallest one on ties; 1 where none is
/// faster than blocking.
[[nodiscard]] int best_pieces(const MeasuredOverlap& measured);

/// Rates fitted to all shapes of a table except those of experts, for which the table does not say
/// how many rows travel: FLOPs over the time of products, bytes over the time of the link, and as
/// cost of a piece the median over the shapes of the additional time with the largest number of
/// pieces against the smallest, per additional product. Throws UsageError without shapes.
[[nodiscard]] TileRates fit_rates(const OverlapTable& table);

/// Pieces of each member for a product: those of the shape if it was measured, else of the smallest
/// measured shape with at least its rows, inner and columns; else, and for an operation, team size
/// or type that was not measured, what choose_tiles() computes with the table's rates. (For streams
/// `members` is not compared: they run on all ranks of the measured team.)
[[nodiscard]] int pieces_for(const OverlapTable& table, const TileShape& shape);

/// Reads a table (JSON, version 1; docs/profiles.md). Throws InputFileError naming the file, the
/// line or the key, and the remedy: for what is not JSON, keys that are unknown, missing or given
/// twice, values out of range, candidates that do not ascend, a choice that is none of them, and
/// shapes that are there twice.
[[nodiscard]] OverlapTable read_overlap_table(const std::string& path);

/// The same from text in memory; `name` stands for the file in messages.
[[nodiscard]] OverlapTable parse_overlap_table(std::string_view text, const std::string& name);

/// Writes `table` so that read_overlap_table() returns the same. The file appears only when
/// complete. Throws OutputFileError.
void write_overlap_table(const std::string& path, const OverlapTable& table);

}  // namespace vocabpipe
