// SPDX-License-Identifier: Apache-2.0
// First half of lowering: the passes of all ranks and the communication they imply, as one graph.
#pragma once

#include "src/schedule/operands.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/lowered.hpp"
#include "vocabpipe/mesh.hpp"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe::lowering {

/// One rank's action in a node, with its buffers (global ids).
struct Part {
    uint16_t rank = 0;
    Do what = Do::pass;
    uint8_t operand_count = 0;  ///< entries of Dataflow::operands
    bool accumulate = true;
    uint16_t reduction = 0;
    uint16_t group = 0;
    uint8_t pieces = 1;
    uint8_t pair_member = 0;  ///< as Action::pair_member
    uint32_t item = 0;
    uint32_t first_operand = 0;  ///< index into Dataflow::operands
};

/// How the time of a node with streamed rows divides.
struct StreamTimes {
    int64_t with_last_ns = 0;    ///< from the arrival of its last rows to its end
    int64_t after_first_ns = 0;  ///< of a pass: from its first rows made to its end
    int64_t after_last_ns = 0;   ///< of a pass: from its last rows made to its end
    int64_t piece_ns = 0;  ///< of a communication: from its begin to the arrival of the first rows
};

/// A pass, a local combine_softmax or ordered_sum, or a communication with all its participants.
struct Node {
    uint32_t first_part = 0;
    uint32_t part_count = 0;
    Lane lane = Lane::compute;
    int64_t duration_ns = 0;
    StreamTimes stream = {};  ///< for boundaries sent in pieces
};

struct PlannedBuffer {
    uint16_t rank = 0;
    Purpose purpose = Purpose::boundary;
    Buffer::Space space = Buffer::Space::arena;
    int64_t bytes = 0;  ///< with `block`: the maximum over slices
    int64_t room = 0;   ///< bytes in the arena, where these are more
    uint16_t bucket = 0;
    /// Says that each slice has another block of a reduction: in its bucket, or from `copies`
    /// members of the axis.
    struct Block {
        uint16_t reduction = 0;
        uint16_t copies = 0;  ///< 0: not such a block
        uint8_t width = 4;    ///< bytes of an element
        Axis axis = Axis::data;
        uint16_t own = SliceBlock::kCountedFromFirst;  ///< as SliceBlock::own
    } block;
};

struct Dataflow {
    std::vector<std::vector<Pass>> passes;  ///< [rank], passes of the step appended
    std::vector<Node> nodes;
    std::vector<Part> parts;
    std::vector<uint32_t> operands;  ///< buffers of parts
    std::vector<std::pair<uint32_t, uint32_t>>
        edges;                   ///< nodes; first completes before second starts
    std::vector<bool> streamed;  ///< [edge] see Program::streamed; missing entries: false
    std::vector<PlannedBuffer> buffers;
    std::vector<Group> groups;  ///< of pipeline ranks
    std::vector<Reduction> reductions;

    [[nodiscard]] std::span<const uint32_t> operands_of(const Part& part) const {
        return std::span(operands).subspan(part.first_operand, part.operand_count);
    }
};

/// The parts and edges depend on neither sizes nor costs. With LowerOptions::as_longest, the times
/// and rooms are those of microbatches of the longest sequences, everything else is that of
/// `sizes`.
[[nodiscard]] Dataflow build_dataflow(const Schedule& schedule, const StepSizes& sizes,
                                      const CostModel& costs, const LowerOptions& options);

}  // namespace vocabpipe::lowering
