// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/bucket_buffers.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe::lowering {

namespace {

/// Piece `piece` of `pieces` of every member's part.
Reduction piece_of(const GradientBucket& bucket, int64_t piece, int64_t pieces) {
    Reduction part{{}, 1, DType::fp32, DType::fp32, {}};
    for (size_t i = 0; i + 1 < bucket.first.size(); ++i) {
        const int64_t begin = bucket.first[i];
        const int64_t length = bucket.first[i + 1] - begin;
        const auto cut = [&](int64_t k) {
            return k == pieces ? begin + length : begin + length * k / pieces / 32 * 32;
        };
        part.first_row.push_back(cut(piece));
        part.last_row.push_back(cut(piece + 1));
    }
    return part;
}

}  // namespace

BucketBuffers::Gather BucketBuffers::add_gather(uint16_t b, Purpose purpose, Buffer::Space space,
                                                Buffer::Space own) {
    const DType type = step_.sizes.dtype;
    const int64_t width = size_of(type);
    const uint16_t reduction = parts(b, type);
    const uint32_t whole = of_bucket(b, buckets_[b].first.back() * width, purpose, space);
    const uint32_t block = own_part(b, own, reduction, width);
    const uint32_t node = graph_.add_node(Do::all_gather_v);
    Part& part =
        graph_.add_part<Do::all_gather_v>(node, rank_, b, {.block = block, .whole = whole});
    part.group = group(b);
    part.reduction = reduction;
    return {node, whole};
}

std::vector<uint32_t> BucketBuffers::add_sum(uint16_t b, const Sum& sum) {
    std::vector<uint32_t> nodes;
    const GradientBucket& bucket = buckets_[b];
    const int64_t elements = bucket.first.back() - bucket.first.front();
    const int64_t pieces =
        members(b) == 1 ? 1 : std::max<int64_t>(1, elements / step_.options.bucket_piece);
    for (int64_t piece = 0; piece < pieces; ++piece) {
        Reduction part = piece_of(bucket, piece, pieces);
        if (part.last_row == part.first_row) continue;  // rounding can leave a piece empty
        const size_t k = nodes.size();
        nodes.push_back(
            add_piece(b, sum, std::move(part), sum.before.empty() ? kNoNode : sum.before[k]));
    }
    return nodes;
}

uint32_t BucketBuffers::add_piece(uint16_t b, const Sum& sum, Reduction part, uint32_t before) {
    int64_t bytes = 0;
    for (int i = 0; i < members(b); ++i) bytes += part.rows(i) * 4;
    const bool in_arena = sum.whole != kNoBuffer;
    const uint16_t reduction = graph_.reduction(std::move(part), kFirstOfReplicas);
    // The only member has nothing to send.
    uint32_t received = sum.whole, arrived = sum.after;
    if (members(b) > 1) {
        const uint32_t sent =
            of_bucket(b, bytes, Purpose::replicas,
                      in_arena ? Buffer::Space::piece : Buffer::Space::bucket_gradients);
        received = parts_of(b, members(b), Buffer::Space::arena, reduction, 4);
        arrived = graph_.add_node(Do::all_to_all);
        Part& deals = graph_.add_part<Do::all_to_all>(
            arrived, rank_, b, {.partial = sent, .blocks = received, .whole = sum.whole});
        deals.group = group(b);
        deals.reduction = reduction;
        graph_.add_edge(sum.after, arrived);
        // There is memory for two pieces at a time: of shared stages, and of all else.
        if (sums_.size() >= 2) graph_.add_edge(sums_[sums_.size() - 2], arrived);
    }
    const uint32_t own = own_part(
        b, in_arena ? Buffer::Space::own_gradients : Buffer::Space::bucket_gradients, reduction, 4);
    const uint32_t add = graph_.add_node(Do::ordered_sum);
    Part& adds = graph_.add_part<Do::ordered_sum>(
        add, rank_, b,
        {.blocks = received, .sum = own, .before = before == kNoNode ? kNoBuffer : own});
    adds.group = group(b);
    adds.reduction = reduction;
    graph_.add_edge(arrived, add);
    if (before != kNoNode) graph_.add_edge(before, add);
    sums_.push_back(add);
    return add;
}

uint32_t BucketBuffers::of_bucket(uint16_t b, int64_t bytes, Purpose purpose, Buffer::Space space) {
    const uint32_t made = graph_.add_buffer(rank_, bytes, purpose, space);
    if (made != kNoBuffer) graph_.buffer(made).bucket = b;
    return made;
}

uint32_t BucketBuffers::own_part(uint16_t b, Buffer::Space space, uint16_t reduction,
                                 int64_t width) {
    const uint32_t part = parts_of(b, 1, space, reduction, width);
    PlannedBuffer& buffer = graph_.buffer(part);
    buffer.bucket = b;
    const bool alone = space == Buffer::Space::own_gradients || space == Buffer::Space::own_weights;
    if (alone) buffer.block.own = parts(b, graph_.reduction(reduction).result);
    return part;
}

/// A buffer for `copies` parts of the largest size that any member has.
uint32_t BucketBuffers::parts_of(uint16_t b, int copies, Buffer::Space space, uint16_t reduction,
                                 int64_t width) {
    const Reduction& of = graph_.reduction(reduction);
    int64_t largest = 1;
    for (int i = 0; i < members(b); ++i) largest = std::max(largest, of.rows(i));
    const uint32_t made =
        graph_.add_buffer(rank_, largest * width * copies, Purpose::replicas, space);
    graph_.buffer(made).block = {reduction, static_cast<uint16_t>(copies),
                                 static_cast<uint8_t>(width), buckets_[b].axis};
    return made;
}

}  // namespace vocabpipe::lowering
