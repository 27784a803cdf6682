// SPDX-License-Identifier: Apache-2.0
// Which of a rank's weights the replicas of data parallelism reduce at once, and which part of them
// each replica updates.
#pragma once

#include "src/model/parameter_rows.hpp"
#include "vocabpipe/lower.hpp"
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

/// Consecutive parameters of a rank: those of one layer, of the final norm, or a single one. What
/// is in a bucket, and so where its parts are cut, does not depend on how layers are spread over
/// ranks.
struct ParameterBucket {
    size_t first_parameter = 0;
    size_t parameters = 0;
    GradientBucket cut;
};

/// Of all parameters that are updated, in order. Parts are as equal as cuts between rows of
/// matrices and between cache lines of vectors allow.
[[nodiscard]] std::vector<ParameterBucket> gradient_buckets(const ModelConfig& config,
                                                            const std::vector<ParameterRows>& rows,
                                                            int replicas);

/// Sets ParameterRows::owned to what `replica` updates.
void own_part(const ModelConfig& config, const std::vector<ParameterBucket>& buckets, int replica,
              std::vector<ParameterRows>& rows);

}  // namespace vocabpipe
