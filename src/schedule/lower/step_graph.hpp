// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/graph.hpp"
#include "src/schedule/lower/pass_nodes.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// What is lowered, what all parts of it ask for, and the graph that it becomes.
struct StepGraph {
    /// All must outlive this. Adds the schedule's passes.
    StepGraph(const Schedule& schedule, const StepSizes& sizes, const LowerOptions& options);

    [[nodiscard]] int rank_of(int stage) const {
        return schedule.rank_of_stage[static_cast<size_t>(stage)];
    }
    /// A stage's input, output or a gradient of them.
    [[nodiscard]] uint32_t add_boundary(int rank, Purpose purpose = Purpose::boundary) {
        return graph.add_buffer(rank, boundary_bytes, purpose);
    }
    [[nodiscard]] uint32_t add_workspace(int rank, int64_t bytes) {
        return graph.add_buffer(rank, bytes, Purpose::workspace);
    }
    /// From a pass to the communication of what it makes, or from that to the pass that uses it.
    /// `streamed`: rows may go by pieces, if any do.
    void add_stream(uint32_t before, uint32_t after, bool streamed = true) {
        if (streamed && options.pieces > 1) {
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
    const std::vector<int> output_owners;  ///< and of the output layer
    const int first_rank;                  ///< of stage 0
    const int last_rank;                   ///< of the last stage
    const int64_t boundary_bytes;          ///< N * h * size of the run's type
    const uint8_t pieces;                  ///< that a boundary has: options.pieces, or fewer
    Graph graph;
    PassNodes passes;
};

}  // namespace vocabpipe::lowering
