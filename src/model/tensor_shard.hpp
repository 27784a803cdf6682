// SPDX-License-Identifier: Apache-2.0
// Which part of a parameter the ranks of tensor parallelism hold (Megatron-LM, Shoeybi et al. 2019,
// arXiv 1909.08053).
#pragma once

#include "src/model/parameter_source.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A rank among those that share a stage: Mesh::Place::tensor of Mesh::tensor.
struct TensorPlace {
    int rank = 0;   ///< i
    int ranks = 1;  ///< t
    /// Member by member.
    friend bool operator==(const TensorPlace&, const TensorPlace&) = default;
};

/// Of `count` things that `places` ranks share, rank i having those from count i / places on: the
/// most that one has.
[[nodiscard]] constexpr int64_t largest_part(int64_t count, int places) {
    return (count + places - 1) / places;
}

/// The elements of a matrix (or of a vector, which has one row) that a rank holds: all rows of
/// `rows` with all columns of `columns`, in their order. Ranges are ascending and apart.
struct TensorShard {
    /// Rows, or columns, [first, first + count) of the logical tensor.
    struct Range {
        int64_t first = 0;
        int64_t count = 0;
        /// Member by member.
        friend bool operator==(const Range&, const Range&) = default;
    };
    std::vector<Range> rows;
    std::vector<Range> columns;

    /// Rows, and columns, of the part that is held.
    [[nodiscard]] int64_t row_count() const;
    [[nodiscard]] int64_t column_count() const;
    /// Member by member.
    friend bool operator==(const TensorShard&, const TensorShard&) = default;
};

/// The part of one rank. Every range of LogicalParameter::ranges is cut into `place.ranks` equal
/// parts, so that rank i has its part of q, of k and of v. Throws UsageError if a range cannot be.
[[nodiscard]] TensorShard tensor_shard(const LogicalParameter& parameter, TensorPlace place);

}  // namespace vocabpipe
