// SPDX-License-Identifier: Apache-2.0
// Which of a rank's weights the ranks that have them add up the gradients of at once, and which
// part of them each rank updates.
#pragma once

#include "src/model/parameter_rows.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Parameters start at multiples of this many elements of their bucket: cache lines in every type.
inline constexpr int64_t kBucketAlignment = 32;
[[nodiscard]] constexpr int64_t padded_elements(int64_t elements) {
    return (elements + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
}

/// Parameters of a rank that lie one after the other in its memory: those of one layer whose
/// gradients are added up over one axis, of the final norm, or a single one. What is in a bucket,
/// and so where its parts are cut, does not depend on how layers are spread over ranks, and is the
/// same on all ranks that share a stage.
struct ParameterBucket {
    std::vector<size_t> parameters;  ///< in the order of their memory
    GradientBucket cut;
};

/// Parameters in the order of their memory: as they are, but those of a layer by axis.
[[nodiscard]] std::vector<size_t> memory_order(const std::vector<ParameterRows>& rows);

/// Of all parameters that are updated, in the order of their memory. Each has as many parts as its
/// axis has members, also if that is a single one, which has nothing to add up. Parts are as equal
/// as cuts between rows of matrices and between cache lines of vectors allow.
[[nodiscard]] std::vector<ParameterBucket> gradient_buckets(const ModelConfig& config,
                                                            const std::vector<ParameterRows>& rows,
                                                            const Mesh& mesh);

/// Sets ParameterRows::owned to what the rank at `place` updates.
void own_part(const ModelConfig& config, const std::vector<ParameterBucket>& buckets,
              const Mesh& mesh, const Mesh::Place& place, std::vector<ParameterRows>& rows);

}  // namespace vocabpipe
