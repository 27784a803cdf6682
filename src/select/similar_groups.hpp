// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/graph_file.hpp"
#include "src/select/files/subset_file.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Samples that a chain of edges of at least some similarity connects, two or more.
struct SimilarGroup {
    int64_t samples = 0, chosen = 0;
    std::vector<int64_t> some_chosen, some_left_out;  ///< ascending: the first ones
};

/// All such groups.
struct SimilarGroups {
    int64_t groups = 0;
    int64_t samples = 0, chosen = 0;    ///< in any of them
    int64_t without = 0;                ///< groups of which nothing was chosen
    std::vector<SimilarGroup> largest;  ///< first; of equal ones that with the smallest sample
};

/// What a subset has of every group of similar samples: of near-duplicates, if `similarity` (fixed
/// point: 2^20 is 1), the least of their edges, is high. Lists at most `most` groups with at most
/// `members` chosen samples each, and as many others. Takes 17 bytes per sample. InputFileError for
/// rows; graph and subset must be of the same samples.
[[nodiscard]] SimilarGroups similar_groups(const GraphFile& graph, const SubsetReader& subset,
                                           int32_t similarity, size_t most, size_t members);

}  // namespace vocabpipe
