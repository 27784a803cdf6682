// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/dataflow.hpp"

#include "src/schedule/action_costs.hpp"
#include "src/schedule/lower/end_of_step.hpp"
#include "src/schedule/lower/overlapped_pairs.hpp"
#include "src/schedule/lower/sharded_stages.hpp"
#include "src/schedule/lower/slice.hpp"
#include "src/schedule/lower/step_graph.hpp"
#include "src/schedule/lower/transformer_flow.hpp"
#include "src/schedule/lower/vocabulary_flow.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe::lowering {

namespace {

/// Computes the times of the nodes of a dataflow.
class Durations {
public:
    /// `pieces`: [microbatch] of a boundary.
    Durations(const Dataflow& flow, const CostModel& costs, Mesh mesh, std::vector<int> pieces)
        : flow_(flow), costs_(costs), mesh_(mesh), pieces_(std::move(pieces)) {}

    [[nodiscard]] int64_t of(const Node& node) const {
        const std::span<const Part> parts(flow_.parts.data() + node.first_part, node.part_count);
        const auto sizes = [this](uint32_t buffer) { return flow_.buffers[buffer].bytes; };
        const Part& first = parts.front();
        switch (traits(first.what).kind) {
            case ActionKind::pass:
                return costs_.pass_ns(mesh_.world_rank(first.rank, 0),
                                      flow_.passes[first.rank][first.item]);
            case ActionKind::local:
                return costs_.local_ns(first.what, bytes_touched(flow_.operands_of(first), sizes));
            case ActionKind::communication:
                break;
        }
        return transfer_ns(parts, 1);
    }

    [[nodiscard]] StreamTimes stream_of(const Node& node) const {
        const std::span<const Part> parts(flow_.parts.data() + node.first_part, node.part_count);
        const Part& first = parts.front();
        if (is_communication(first.what)) {
            const int64_t piece = transfer_ns(parts, first.pieces);
            return {.with_last_ns = piece, .piece_ns = piece};
        }
        if (first.what != Do::pass) return {};
        const Pass& pass = flow_.passes[first.rank][first.item];
        const StreamedShare share = costs_.streamed_share(mesh_.world_rank(first.rank, 0), pass);
        const int pieces = pieces_[pass.microbatch];
        const auto after = [&](int64_t permille) {
            return node.duration_ns * (1000 - permille) / 1000;
        };
        const int made_per_piece = (share.output_end - share.output_begin) / pieces;
        return {.with_last_ns = after(share.input_end * (pieces - 1) / pieces),
                .after_first_ns = after(share.output_begin + made_per_piece),
                .after_last_ns = after(share.output_end)};
    }

private:
    /// Time of one of `pieces` pieces.
    [[nodiscard]] int64_t transfer_ns(std::span<const Part> parts, int pieces) const {
        int64_t bytes = 0;
        for (const Part& part : parts) {
            bytes = std::max(
                bytes, bytes_sent(part.what, flow_.operands_of(part),
                                  [this](uint32_t buffer) { return flow_.buffers[buffer].bytes; }));
        }
        const Part& first = parts.front();
        return costs_.transfer_ns(transfer_kind(first.what),
                                  group_at(flow_.groups[first.group], mesh_, {}), bytes / pieces);
    }

    const Dataflow& flow_;
    const CostModel& costs_;
    const Mesh mesh_;
    const std::vector<int> pieces_;
};

/// Takes bytes, rows and pieces from `shorter`, which has the same parts, and leaves the room.
void shrink(Dataflow& longest, const Dataflow& shorter) {
    for (size_t p = 0; p < longest.parts.size(); ++p) {
        Part& part = longest.parts[p];
        const Part& of = shorter.parts[p];
        part.reduction = of.reduction;
        part.pieces = of.pieces;
        const std::span<const uint32_t> room = longest.operands_of(part);
        const std::span<const uint32_t> own = shorter.operands_of(of);
        for (size_t i = 0; i < room.size(); ++i) {
            // A workspace that only the longest needs stays as it is.
            if (own[i] == kNoBuffer) continue;
            if (room[i] == kNoBuffer) {
                throw UsageError(
                    "lowering: microbatches of shorter sequences need a buffer that the longest do "
                    "not have, so they cannot take its place");
            }
            PlannedBuffer& buffer = longest.buffers[room[i]];
            buffer.room = std::max(buffer.room, buffer.bytes);
            buffer.bytes = shorter.buffers[own[i]].bytes;
        }
    }
}

Dataflow build(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
               const LowerOptions& options) {
    StepGraph step(schedule, sizes, options);
    TransformerFlow stages(step);
    for (uint32_t j = 0; j < step.microbatches; ++j) {
        const Embedded embedded = step.input_owners.empty() ? Embedded() : add_embedding(step, j);
        const uint32_t x = stages.forward(j, embedded.x, embedded.for_depths);
        const uint32_t dy = step.output_owners.empty() ? kNoBuffer : add_output_layer(step, j, x);
        if (!step.backward) continue;
        const uint32_t of_depths = sizes.predicted_tokens > 1 && schedule.embedding_gradient
                                       ? step.add_boundary(step.last_rank, j)
                                       : kNoBuffer;
        const uint32_t dx = stages.backward(j, dy, of_depths);
        if (schedule.embedding_gradient && !step.input_owners.empty()) {
            add_embedding_gradient(step, j, dx, of_depths);
        }
    }
    mark_overlapped_pairs(step);
    const std::vector<std::vector<uint32_t>> sums = add_sharded_stages(step);
    if (step.backward) add_end_of_step(step, sums);
    std::vector<int> pieces;
    for (uint32_t j = 0; j < step.microbatches; ++j) pieces.push_back(step.of(j).pieces);
    Dataflow flow = step.graph.take();
    const Durations durations(flow, costs, sizes.mesh(schedule.ranks), std::move(pieces));
    for (Node& node : flow.nodes) node.duration_ns = durations.of(node);
    if (!flow.streamed.empty()) {
        for (Node& node : flow.nodes) node.stream = durations.stream_of(node);
    }
    return flow;
}

}  // namespace

Dataflow build_dataflow(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
                        const LowerOptions& options) {
    Dataflow flow = build(schedule, sizes, costs, options);
    if (!options.as_longest || sizes.length_of_microbatch.empty()) return flow;
    StepSizes all_longest = sizes;
    all_longest.length_of_microbatch.clear();
    Dataflow longest = build(schedule, all_longest, costs, options);
    shrink(longest, flow);
    return longest;
}

}  // namespace vocabpipe::lowering
