// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/pass_nodes.hpp"

namespace vocabpipe::lowering {

PassNodes::PassNodes(const Schedule& schedule, Graph& graph)
    : microbatches_(static_cast<uint32_t>(schedule.microbatches)) {
    const auto ranks = static_cast<size_t>(schedule.ranks);
    const auto stages = static_cast<size_t>(schedule.stages);
    last_of_input_.assign(ranks, kNoNode);
    last_of_output_.assign(ranks, kNoNode);
    last_of_stage_.assign(stages, kNoNode);
    for (auto& nodes : of_stage_) nodes.assign(stages * microbatches_, kNoNode);
    for (auto& nodes : of_rank_) nodes.assign(ranks * microbatches_, kNoNode);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        for (const Pass& pass : schedule.passes[static_cast<size_t>(rank)]) {
            const uint32_t node = graph.append_pass(rank, pass);
            uint32_t* last = nullptr;
            switch (pass_traits(pass.op).adds_to) {
                case AddsTo::nothing:
                    break;
                case AddsTo::stage:
                    last = &last_of_stage_[pass.stage];
                    break;
                case AddsTo::input:
                    last = &last_of_input_[static_cast<size_t>(rank)];
                    break;
                case AddsTo::output:
                    last = &last_of_output_[static_cast<size_t>(rank)];
                    break;
            }
            if (last != nullptr) {
                // The first pass of the step that writes a weight's gradient does not add to it,
                // nor does that of a use (sharded_stages.cpp).
                graph.pass_part(node).accumulate = *last != kNoNode;
                *last = node;
            }
            add(rank, pass, node);
        }
    }
}

void PassNodes::add(int rank, const Pass& pass, uint32_t node) {
    if (traits(pass.op).has_stage) {
        of_stage_[static_cast<size_t>(pass.op)]
                 [static_cast<size_t>(pass.stage) * microbatches_ + pass.microbatch] = node;
    } else {
        of_rank_[static_cast<size_t>(pass.op) - kFirstOfRank]
                [static_cast<size_t>(rank) * microbatches_ + pass.microbatch] = node;
    }
}

uint32_t PassNodes::last_gradient(int rank, const GradientBucket& bucket) const {
    switch (bucket.of) {
        case GradientBucket::Of::input:
            return last_of_input_[static_cast<size_t>(rank)];
        case GradientBucket::Of::output:
            return last_of_output_[static_cast<size_t>(rank)];
        default:
            return last_of_stage_[static_cast<size_t>(bucket.stage)];
    }
}

}  // namespace vocabpipe::lowering
