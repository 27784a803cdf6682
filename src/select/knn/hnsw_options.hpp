// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe {

/// Sizes of the graphs in which hnswlib searches (Malkov and Yashunin, arXiv 1603.09320), with its
/// names and, but for the last two, its defaults.
struct HnswOptions {
    int64_t m = 16;  ///< links of a row in the upper layers; the lowest has twice as many
    int64_t ef_construction = 200;  ///< candidates while a row is added
    int64_t ef_search = 64;         ///< candidates of a search; k + 1 if that is more
    int64_t recall_samples = 1000;  ///< compared with all others to measure the recall
};

}  // namespace vocabpipe
