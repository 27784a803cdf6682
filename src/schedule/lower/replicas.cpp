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
    const DType type = step.sizes.dtype;
    const int64_t width = size_of(type);
    for (uint16_t b = 0; b < buckets.all().size(); ++b) {
        const GradientBucket& bucket = buckets.all()[b];
        if (buckets.members(b) == 1 || bucket.shards_weights) continue;
        const uint16_t reduction = buckets.parts(b, type);
        const uint32_t all = buckets.of_bucket(b, bucket.first.back() * width, Purpose::replicas,
                                               Buffer::Space::bucket_weights);
        const uint32_t own = buckets.own_part(b, Buffer::Space::bucket_weights, reduction, width);
        const uint32_t node = step.graph.add_node(Do::all_gather_v);
        Part& part =
            step.graph.add_part<Do::all_gather_v>(node, rank, b, {.block = own, .whole = all});
        part.group = buckets.group(b);
        part.reduction = reduction;
        step.graph.add_edge(update, node);
    }
}

}  // namespace vocabpipe::lowering
