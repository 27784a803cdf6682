// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/replicas.hpp"

#include "src/schedule/lower/bucket_buffers.hpp"

#include <algorithm>
#include <numeric>

namespace vocabpipe::lowering {

std::vector<uint32_t> add_sums_over_replicas(StepGraph& step, int rank) {
    if (step.sizes.buckets.empty()) return {};
    BucketBuffers buckets(step, rank);
    std::vector<uint16_t> order(buckets.all().size());
    std::iota(order.begin(), order.end(), uint16_t{0});
    const auto completed = [&](uint16_t b) {
        return step.passes.last_gradient(rank, buckets.all()[b]);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](uint16_t a, uint16_t b) { return completed(a) < completed(b); });
    for (const uint16_t b : order) {
        if (buckets.members(b) == 1 || buckets.all()[b].shards_gradients) continue;
        buckets.add_sum(b, {.after = completed(b)});
    }
    return buckets.sums();
}

void gather_weights(StepGraph& step, int rank, uint32_t update) {
    if (step.sizes.buckets.empty()) return;
    BucketBuffers buckets(step, rank);
    for (uint16_t b = 0; b < buckets.all().size(); ++b) {
        if (buckets.members(b) == 1 || buckets.all()[b].shards_weights) continue;
        const auto gather = buckets.add_gather(b, Purpose::replicas, Buffer::Space::bucket_weights,
                                               Buffer::Space::bucket_weights);
        step.graph.add_edge(update, gather.node);
    }
}

}  // namespace vocabpipe::lowering
