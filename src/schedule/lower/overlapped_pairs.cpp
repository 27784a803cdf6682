// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/overlapped_pairs.hpp"

#include <algorithm>
#include <cstddef>

namespace vocabpipe::lowering {

namespace {

/// Whether weights or gradients of the stage are whole only within its passes: the first pass of a
/// pair to end would take them away from the other.
bool shards(const StepSizes& sizes, size_t rank, int stage) {
    return rank < sizes.buckets.size() &&
           std::ranges::any_of(sizes.buckets[rank], [&](const GradientBucket& bucket) {
               return bucket.of == GradientBucket::Of::stage && bucket.stage == stage &&
                      (bucket.shards_gradients || bucket.shards_weights);
           });
}

}  // namespace

void mark_overlapped_pairs(StepGraph& step) {
    if (!step.options.overlap_pairs) return;
    const auto mark = [&](const Pass& pass, uint8_t member) {
        const uint32_t node = step.passes.of_stage(pass.op, pass.stage, pass.microbatch);
        step.graph.pass_part(node).pair_member = member;
    };
    for (size_t rank = 0; rank < step.schedule.passes.size(); ++rank) {
        const std::vector<Pass>& list = step.schedule.passes[rank];
        for (size_t i = 0; i + 1 < list.size(); ++i) {
            const Pass& first = list[i];
            const Pass& second = list[i + 1];
            if (!first.with_next) continue;
            if (first.stage == second.stage && shards(step.sizes, rank, first.stage)) continue;
            mark(first, 1);
            mark(second, 2);
        }
    }
}

}  // namespace vocabpipe::lowering
