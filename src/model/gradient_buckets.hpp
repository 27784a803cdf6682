// SPDX-License-Identifier: Apache-2.0
// Groups a rank's weights into buckets, whose gradients ranks add up together, and decides which
// part of each bucket each rank updates.
#pragma once

#include "src/model/parameter_rows.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Parameters start at multiples of this many elements of their bucket: whole cache lines in every
/// type.
inline constexpr int64_t kBucketAlignment = 32;
[[nodiscard]] constexpr int64_t padded_elements(int64_t elements) {
    return (elements + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
}

/// Parameters of a rank that are adjacent in its memory: those of one layer whose gradients are
/// added up over one axis, those of the final norm, or a single one. The content of a bucket, which
/// also determines the cuts between its parts, does not depend on how layers spread over ranks, and
/// is the same on all ranks that share a stage.
struct ParameterBucket {
    std::vector<size_t> parameters;  ///< in the order of their memory
    std::vector<int64_t> begins;     ///< elements of the bucket before each parameter
    GradientBucket cut;
    size_t member = 0;  ///< this rank among those that add it up

    /// The elements that this rank updates.
    [[nodiscard]] ElementRange own() const {
        return {cut.first[member], cut.first[member + 1] - cut.first[member]};
    }
};

/// Indices of parameters in the order of their memory: the given order, but the parameters of a
/// layer sorted by axis.
[[nodiscard]] std::vector<size_t> memory_order(const std::vector<ParameterRows>& rows);

/// The buckets of all parameters that are not frozen, in the order of their memory. Each has as
/// many parts as its axis has members, even if there is one member and nothing to add up. Parts are
/// as equal as cuts between rows of matrices and between cache lines of vectors allow.
[[nodiscard]] std::vector<ParameterBucket> gradient_buckets(const ModelConfig& config,
                                                            const std::vector<ParameterRows>& rows,
                                                            const Mesh& mesh);

/// Sets GradientBucket::shards_gradients (ZeRO stage 2 and more) and shards_weights (stage 3).
void shard_buckets(int zero_stage, std::vector<ParameterBucket>& buckets);

/// Sets ParameterBucket::member, and ParameterRows::owned to what the rank at `place` updates, or
/// of frozen parameters saves.
void own_part(const ModelConfig& config, const Mesh& mesh, const Mesh::Place& place,
              std::vector<ParameterBucket>& buckets, std::vector<ParameterRows>& rows);

}  // namespace vocabpipe
