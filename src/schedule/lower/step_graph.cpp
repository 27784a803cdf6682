// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/step_graph.hpp"

#include "vocabpipe/tile_map.hpp"

namespace vocabpipe::lowering {

namespace {

/// A reduction of `rows` rows with one block for each member.
Reduction row_blocks(const StepSizes& sizes, int64_t rows, size_t members, DType partial) {
    Reduction reduction{{}, sizes.hidden, partial, sizes.dtype, {}};
    const auto count = static_cast<int64_t>(members);
    for (int64_t i = 0; i <= count; ++i) reduction.first_row.push_back(rows * i / count);
    return reduction;
}

/// A reduction with one block for every tensor rank of every owner, from the rows of its slice. In
/// the rows, blocks of one slice are consecutive; in the group, members of one owner are.
Reduction slice_blocks(const StepSizes& sizes, size_t owners, DType partial) {
    const Reduction of_slice = row_blocks(sizes, sizes.boundary_rows(), owners, partial);
    if (sizes.tensor == 1) return of_slice;
    Reduction reduction{{}, sizes.hidden, partial, sizes.dtype, {}};
    for (size_t k = 0; k < owners; ++k) {
        for (int i = 0; i < sizes.tensor; ++i) {
            const int64_t before = sizes.boundary_rows() * i;
            reduction.first_row.push_back(before + of_slice.first_row[k]);
            reduction.last_row.push_back(before + of_slice.first_row[k + 1]);
        }
    }
    return reduction;
}

}  // namespace

StepGraph::StepGraph(const Schedule& of, const StepSizes& with, const LowerOptions& by)
    : schedule(of),
      sizes(with),
      options(by),
      microbatches(static_cast<uint32_t>(of.microbatches)),
      backward(!of.forward_only()),
      input_owners(of.input.owners()),
      output_owners(of.output.owners()),
      first_rank(of.rank_of_stage.front()),
      last_rank(of.rank_of_stage.back()),
      boundary_bytes(with.boundary_rows() * with.hidden * size_of(with.dtype)),
      pieces(with.tensor > 1
                 ? uint8_t{1}
                 : static_cast<uint8_t>(TileMap::even(with.tokens, 1, by.pieces).pieces(0))),
      shards(with.tensor > 1 ? Axis::model : Axis::pipeline),
      graph(of.ranks),
      passes(of, graph) {
    // kOutputReduction, kInputReduction, kOutputConversion.
    graph.add_reduction(slice_blocks(sizes, output_owners.size(), DType::fp32));
    graph.add_reduction(slice_blocks(sizes, input_owners.size(), sizes.dtype));
    graph.add_reduction(row_blocks(sizes, sizes.tokens, 1, DType::fp32));
    if (sizes.tensor == 1) return;
    const int64_t rows = sizes.boundary_rows();
    collected = {graph.add_reduction(row_blocks(sizes, rows, output_owners.size(), DType::fp32)),
                 graph.add_reduction(row_blocks(sizes, rows, input_owners.size(), sizes.dtype))};
}

}  // namespace vocabpipe::lowering
