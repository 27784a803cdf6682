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

/// Of every data set of a blend; of one data set alone, of each of its documents, or of the data
/// set where its format does not know documents. A sample counts for the document that its first
/// token is in. Reads the numbers of the subset once, 64 KiB at a time. `data` are those that the
/// subset was made from.
[[nodiscard]] std::vector<KeptShare> kept_shares(const TrainingData& data,
                                                 const SubsetReader& subset);

}  // namespace vocabpipe
