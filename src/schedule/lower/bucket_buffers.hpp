// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe::lowering {

/// First reduction of replicas; those before it belong to the vocabulary layers.
inline constexpr uint16_t kFirstOfReplicas = kOutputConversion + 1;

/// The gradient buckets of one rank, and the buffers with which ranks exchange them. `b`: index of
/// a bucket.
class BucketBuffers {
public:
    BucketBuffers(StepGraph& step, int rank)
        : step_(step),
          graph_(step.graph),
          rank_(rank),
          buckets_(step.sizes.buckets[static_cast<size_t>(rank)]) {}

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] const std::vector<GradientBucket>& all() const { return buckets_; }
    /// Members of the group that adds up the bucket: one for each part of it.
    [[nodiscard]] int members(uint16_t b) const {
        return static_cast<int>(buckets_[b].first.size()) - 1;
    }
    /// A buffer of the bucket; kNoBuffer without bytes.
    uint32_t of_bucket(uint16_t b, int64_t bytes, Purpose purpose, Buffer::Space space);

    /// A gather of the weights over the bucket's group.
    struct Gather {
        uint32_t node = kNoNode;
        uint32_t whole = kNoBuffer;  ///< the buffer that it fills
    };
    /// `purpose`, `space`: of the whole; `own`: where this rank's part is.
    Gather add_gather(uint16_t b, Purpose purpose, Buffer::Space space, Buffer::Space own);

    /// A sum over the bucket's group, by pieces.
    struct Sum {
        uint32_t after = 0;  ///< the pass that completes the gradients
        /// The arena's buffer with the whole gradients; kNoBuffer: they are in the bucket, where
        /// they are added up.
        uint32_t whole = kNoBuffer;
        /// What add_sum() has returned for an earlier sum of the bucket, to which this one is
        /// added; empty: none.
        std::span<const uint32_t> before = {};
    };
    /// Adds up a bucket; returns the nodes of the sums of its pieces.
    std::vector<uint32_t> add_sum(uint16_t b, const Sum& sum);
    /// The nodes of the sums of all buckets so far, in order.
    [[nodiscard]] const std::vector<uint32_t>& sums() const { return sums_; }

private:
    /// This group.
    uint16_t group(uint16_t b) { return graph_.group({{rank_}, -1, buckets_[b].axis}); }
    /// The parts of all members, of elements of this type.
    uint16_t parts(uint16_t b, DType type) {
        return graph_.reduction({buckets_[b].first, 1, type, type, {}}, kFirstOfReplicas);
    }
    /// This rank's own part of a reduction, in the memory of its bucket or of its part of it.
    uint32_t own_part(uint16_t b, Buffer::Space space, uint16_t reduction, int64_t width);
    uint32_t add_piece(uint16_t b, const Sum& sum, Reduction part, uint32_t before);
    uint32_t parts_of(uint16_t b, int copies, Buffer::Space space, uint16_t reduction,
                      int64_t width);

    StepGraph& step_;
    Graph& graph_;
    const int rank_;
    const std::vector<GradientBucket>& buckets_;
    std::vector<uint32_t> sums_;
};

}  // namespace vocabpipe::lowering
