// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/subset_file.hpp"
#include "src/train/data/training_data.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// How much of one source of samples was chosen.
struct KeptShare {
    std::string source;  ///< a data set of a blend, or a document: "document 12"
    int64_t samples = 0, chosen = 0;
};

/// Shares per data set of a blend; per document of a single data set, or of the whole set if its
/// format does not know documents. A sample counts for the document that its first token is in.
/// Reads the numbers of the subset once, 64 KiB at a time. `data` must be the data that the subset
/// was made from.
[[nodiscard]] std::vector<KeptShare> kept_shares(const TrainingData& data,
                                                 const SubsetReader& subset);

}  // namespace vocabpipe
