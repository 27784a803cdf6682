// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/step_graph.hpp"

#include "vocabpipe/tile_map.hpp"

namespace vocabpipe::lowering {

namespace {

/// The tokens' rows in as many blocks as the reduction has members.
Reduction row_blocks(const StepSizes& sizes, size_t members, DType partial) {
    Reduction reduction{{}, sizes.hidden, partial, sizes.dtype, {}};
    const auto count = static_cast<int64_t>(members);
    for (int64_t i = 0; i <= count; ++i) reduction.first_row.push_back(sizes.tokens * i / count);
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
      boundary_bytes(with.tokens * with.hidden * size_of(with.dtype)),
      pieces(static_cast<uint8_t>(TileMap::even(with.tokens, 1, by.pieces).pieces(0))),
      graph(of.ranks, by.pairs),
      passes(of, graph) {
    // kOutputReduction, kInputReduction, kOutputConversion.
    graph.add_reduction(row_blocks(sizes, output_owners.size(), DType::fp32));
    graph.add_reduction(row_blocks(sizes, input_owners.size(), sizes.dtype));
    graph.add_reduction(row_blocks(sizes, 1, DType::fp32));
}

}  // namespace vocabpipe::lowering
