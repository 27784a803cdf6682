// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/replicas.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace vocabpipe::lowering {

namespace {

/// First reduction of replicas; those before it belong to the vocabulary layers.
constexpr uint16_t kFirstOfReplicas = kOutputConversion + 1;

/// Piece `piece` of `pieces` of every replica's block.
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

/// The buckets of one rank.
class Buckets {
public:
    Buckets(StepGraph& step, int rank)
        : step_(step),
          graph_(step.graph),
          rank_(rank),
          buckets_(step.sizes.buckets[static_cast<size_t>(rank)]) {}

    std::vector<uint32_t> sum() {
        std::vector<uint16_t> order(buckets_.size());
        std::iota(order.begin(), order.end(), uint16_t{0});
        std::stable_sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) {
            return step_.passes.last_gradient(rank_, buckets_[a]) <
                   step_.passes.last_gradient(rank_, buckets_[b]);
        });
        for (const uint16_t b : order) {
            if (members(b) == 1) continue;
            const GradientBucket& bucket = buckets_[b];
            const int64_t elements = bucket.first.back() - bucket.first.front();
            const int64_t pieces = std::max<int64_t>(1, elements / step_.options.bucket_piece);
            for (int64_t piece = 0; piece < pieces; ++piece) {
                add_piece(b, piece_of(bucket, piece, pieces));
            }
        }
        return std::move(sums_);
    }

    void gather(uint32_t update) {
        const DType type = step_.sizes.dtype;
        const int64_t width = size_of(type);
        for (uint16_t b = 0; b < buckets_.size(); ++b) {
            if (members(b) == 1) continue;
            const uint16_t reduction =
                graph_.reduction({buckets_[b].first, 1, type, type, {}}, kFirstOfReplicas);
            const uint32_t all =
                whole(b, Buffer::Space::bucket_weights, buckets_[b].first.back() * width);
            const uint32_t mine = own_block(b, Buffer::Space::bucket_weights, reduction, width);
            const uint32_t node = graph_.add_node(Do::all_gather_v);
            Part& part =
                graph_.add_part<Do::all_gather_v>(node, rank_, b, {.block = mine, .whole = all});
            part.group = replicas(b);
            part.reduction = reduction;
            graph_.add_edge(update, node);
        }
    }

private:
    void add_piece(uint16_t b, Reduction part) {
        int64_t bytes = 0;
        for (int i = 0; i < members(b); ++i) bytes += part.rows(i) * 4;
        if (bytes == 0) return;  // rounding can leave a piece empty
        const uint16_t reduction = graph_.reduction(std::move(part), kFirstOfReplicas);
        const uint32_t mine = whole(b, Buffer::Space::bucket_gradients, bytes);
        const uint32_t theirs = blocks(b, members(b), Buffer::Space::arena, reduction, 4);
        const uint32_t node = graph_.add_node(Do::all_to_all);
        Part& deals =
            graph_.add_part<Do::all_to_all>(node, rank_, b, {.partial = mine, .blocks = theirs});
        deals.group = replicas(b);
        deals.reduction = reduction;
        graph_.add_edge(step_.passes.last_gradient(rank_, buckets_[b]), node);
        // There is memory for two pieces at a time.
        if (sums_.size() >= 2) graph_.add_edge(sums_[sums_.size() - 2], node);
        const uint32_t sum = own_block(b, Buffer::Space::bucket_gradients, reduction, 4);
        const uint32_t add = graph_.add_node(Do::ordered_sum);
        Part& adds =
            graph_.add_part<Do::ordered_sum>(add, rank_, b, {.blocks = theirs, .sum = sum});
        adds.group = replicas(b);
        adds.reduction = reduction;
        graph_.add_edge(node, add);
        sums_.push_back(add);
    }

    uint32_t whole(uint16_t b, Buffer::Space space, int64_t bytes) {
        const uint32_t made = graph_.add_buffer(rank_, bytes, Purpose::replicas, space);
        graph_.buffer(made).bucket = b;
        return made;
    }
    /// The group that adds up the bucket.
    uint16_t replicas(uint16_t b) { return graph_.group({{rank_}, -1, buckets_[b].axis}); }
    /// Members of this group: one for each part of the bucket.
    [[nodiscard]] int members(uint16_t b) const {
        return static_cast<int>(buckets_[b].first.size()) - 1;
    }
    /// This slice's own block of a reduction, in its bucket.
    uint32_t own_block(uint16_t b, Buffer::Space space, uint16_t reduction, int64_t width) {
        const uint32_t block = blocks(b, 1, space, reduction, width);
        graph_.buffer(block).bucket = b;
        return block;
    }
    /// A buffer for `copies` blocks of the largest size that any member has.
    uint32_t blocks(uint16_t b, int copies, Buffer::Space space, uint16_t reduction,
                    int64_t width) {
        const Reduction& parts = graph_.reduction(reduction);
        int64_t largest = 1;
        for (int i = 0; i < members(b); ++i) largest = std::max(largest, parts.rows(i));
        const uint32_t made =
            graph_.add_buffer(rank_, largest * width * copies, Purpose::replicas, space);
        graph_.buffer(made).block = {reduction, static_cast<uint16_t>(copies),
                                     static_cast<uint8_t>(width), buckets_[b].axis};
        return made;
    }

    StepGraph& step_;
    Graph& graph_;
    const int rank_;
    const std::vector<GradientBucket>& buckets_;
    std::vector<uint32_t> sums_;
};

}  // namespace

std::vector<uint32_t> add_sums_over_replicas(StepGraph& step, int rank) {
    return step.sizes.buckets.empty() ? std::vector<uint32_t>{} : Buckets(step, rank).sum();
}

void gather_weights(StepGraph& step, int rank, uint32_t update) {
    if (!step.sizes.buckets.empty()) Buckets(step, rank).gather(update);
}

}  // namespace vocabpipe::lowering
