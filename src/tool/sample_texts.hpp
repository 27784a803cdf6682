// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/subset_file.hpp"
#include "src/train/data/training_data.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// How one sample begins.
struct SampleText {
    int64_t sample = 0;
    std::string source;  ///< "document 12", or its data set
    std::string text;    ///< UTF-8; "..." at the end where the sample goes on
};

/// Some of the chosen samples and of those left out, from all over the data.
struct SampleTexts {
    std::vector<SampleText> chosen, left_out;
    std::string tokenizer;  ///< what reads the tokens; empty: nothing is known to, and no texts
};

/// At most `count` of both. `model`: a SentencePiece file; empty: PREFIX.model beside a data set,
/// or bytes where its documents end as those of bytes. Throws InputFileError for the model, and
/// UsageError where one was given that has not all tokens that are shown.
[[nodiscard]] SampleTexts sample_texts(const TrainingData& data, const SubsetReader& subset,
                                       const std::string& model, int64_t count);

}  // namespace vocabpipe::tool
