// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/step_graph.hpp"

#include "vocabpipe/tile_map.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe::lowering {

namespace {

/// A reduction of `rows` rows with one block for each member.
Reduction row_blocks(const StepSizes& sizes, int64_t rows, size_t members, DType partial) {
    Reduction reduction{{}, sizes.hidden, partial, sizes.dtype, {}};
    const auto count = std::max(static_cast<int64_t>(members), int64_t{1});  // 0: no such layer
    for (int64_t i = 0; i <= count; ++i) reduction.first_row.push_back(rows * i / count);
    return reduction;
}

/// A reduction of `all` rows with one block for every tensor rank of every owner, from the rows of
/// its slice. In the rows, blocks of one slice are consecutive; in the group, members of one owner
/// are.
Reduction slice_blocks(const StepSizes& sizes, int64_t all, size_t owners, DType partial) {
    const int64_t rows = all / sizes.tensor;
    const Reduction of_slice = row_blocks(sizes, rows, owners, partial);
    if (sizes.tensor == 1) return of_slice;
    Reduction reduction{{}, sizes.hidden, partial, sizes.dtype, {}};
    for (size_t k = 0; k < owners; ++k) {
        for (int i = 0; i < sizes.tensor; ++i) {
            const int64_t before = rows * i;
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
      shards(with.tensor > 1 ? Axis::model : Axis::pipeline),
      graph(of.ranks),
      passes(of, graph) {
    add_length(sizes.tokens, sizes.stages, sizes.shards);
    for (const LengthSizes& length : sizes.shorter) {
        add_length(length.tokens, length.stages, length.shards);
    }
}

/// The longest length comes first, and its reductions have the numbers kOutputReduction,
/// kInputReduction and kOutputConversion.
void StepGraph::add_length(int64_t tokens, std::span<const StageBytes> stages,
                           std::span<const ShardBytes> shards) {
    const int64_t rows = tokens / sizes.tensor;
    const int64_t output_rows = tokens * sizes.predicted_tokens;
    const int64_t row_bytes = sizes.hidden * size_of(sizes.dtype);
    LengthGraph length{.tokens = tokens,
                       .output_rows = output_rows,
                       .stages = stages,
                       .shards = shards,
                       .boundary_bytes = rows * row_bytes,
                       .output_bytes = output_rows / sizes.tensor * row_bytes};
    if (sizes.tensor == 1) {
        length.pieces = static_cast<uint8_t>(TileMap::even(tokens, 1, options.pieces).pieces(0));
    }
    const auto add = [&](Reduction reduction, bool embeds) {
        reduction.embeds = embeds;
        return graph.add_reduction(std::move(reduction));
    };
    length.dealt = {add(slice_blocks(sizes, output_rows, output_owners.size(), DType::fp32), false),
                    add(slice_blocks(sizes, tokens, input_owners.size(), sizes.dtype), true)};
    length.conversion = add(row_blocks(sizes, output_rows, 1, DType::fp32), false);
    length.collected = length.dealt;
    if (sizes.tensor > 1) {
        length.collected = {
            add(row_blocks(sizes, output_rows / sizes.tensor, output_owners.size(), DType::fp32),
                false),
            add(row_blocks(sizes, rows, input_owners.size(), sizes.dtype), true)};
    }
    lengths.push_back(length);
}

}  // namespace vocabpipe::lowering
