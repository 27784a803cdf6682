// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/graph.hpp"
#include "src/schedule/lower/pass_nodes.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/schedule.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe::lowering {

/// What StepGraph holds for microbatches of one length.
struct LengthGraph {
    int64_t tokens = 0;                  ///< N
    int64_t output_rows = 0;             ///< N (1 + D), rows of X
    std::span<const StageBytes> stages;  ///< [global stage]
    std::span<const ShardBytes> shards;  ///< [rank]
    int64_t boundary_bytes = 0;          ///< N / t * h * size of the run's type
    int64_t output_bytes = 0;            ///< of a rank's rows of X, and of their gradient
    /// Pieces of a boundary: options.pieces, or fewer. 1 with tensor ranks, whose passes have
    /// pieces of their own.
    uint8_t pieces = 1;
    /// [kOutputReduction or kInputReduction] The reduction of the sum.
    std::array<uint16_t, 2> dealt{kOutputReduction, kInputReduction};
    /// [the same] The reduction by which the sum's blocks are gathered at the root: the same one,
    /// or with tensor ranks that of the rows of one slice.
    std::array<uint16_t, 2> collected{kOutputReduction, kInputReduction};
    uint16_t conversion = kOutputConversion;  ///< after a native output reduction
};

/// The input of lowering, values that all its parts need, and the graph that they build.
struct StepGraph {
    /// All must outlive this. Adds the schedule's passes.
    StepGraph(const Schedule& schedule, const StepSizes& sizes, const LowerOptions& options);

    [[nodiscard]] int rank_of(int stage) const {
        return schedule.rank_of_stage[static_cast<size_t>(stage)];
    }
    /// What follows from the length of a microbatch.
    [[nodiscard]] const LengthGraph& of(uint32_t microbatch) const {
        return lengths[sizes.length_of(static_cast<int>(microbatch))];
    }
    /// A stage's input, output or a gradient of them.
    [[nodiscard]] uint32_t add_boundary(int rank, uint32_t microbatch,
                                        Purpose purpose = Purpose::boundary) {
        return graph.add_buffer(rank, of(microbatch).boundary_bytes, purpose);
    }
    /// A rank's rows of X, or their gradient.
    [[nodiscard]] uint32_t add_output(int rank, uint32_t microbatch, Purpose purpose) {
        return graph.add_buffer(rank, of(microbatch).output_bytes, purpose);
    }
    /// A boundary with the rows of all tensor ranks.
    [[nodiscard]] uint32_t add_whole(int rank, uint32_t microbatch, Purpose purpose) {
        return graph.add_buffer(rank, of(microbatch).boundary_bytes * sizes.tensor, purpose);
    }
    [[nodiscard]] uint32_t add_workspace(int rank, int64_t bytes) {
        return graph.add_buffer(rank, bytes, Purpose::workspace);
    }
    /// An edge from a pass to the communication of its output, or from a communication to the pass
    /// that uses it. `streamed`: may be a streamed edge.
    void add_stream(uint32_t before, uint32_t after, bool streamed = true) {
        if (streamed && options.pieces > 1 && sizes.tensor == 1) {
            graph.add_streamed_edge(before, after);
        } else {
            graph.add_edge(before, after);
        }
    }

    const Schedule& schedule;
    const StepSizes& sizes;
    const LowerOptions& options;
    const uint32_t microbatches;
    const bool backward;                   ///< false: evaluation
    const std::vector<int> input_owners;   ///< ranks with rows of the input layer
    const std::vector<int> output_owners;  ///< ranks with rows of the output layer
    const int first_rank;                  ///< of stage 0
    const int last_rank;                   ///< of the last stage
    /// Axis of the ranks that share the vocabulary's rows.
    const Axis shards;
    Graph graph;
    PassNodes passes;
    std::vector<LengthGraph> lengths;  ///< by StepSizes::length_of()

private:
    void add_length(int64_t tokens, std::span<const StageBytes> stages,
                    std::span<const ShardBytes> shards);
};

}  // namespace vocabpipe::lowering
