// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/subset_file.hpp"
#include "src/train/data/training_data.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// The beginning of one sample.
struct SampleText {
    int64_t sample = 0;
    std::string source;  ///< "document 12", or its data set
    std::string text;    ///< UTF-8; ends in "..." if the sample goes on
};

/// Some of the chosen samples and of those left out, spread over the data.
struct SampleTexts {
    std::vector<SampleText> chosen, left_out;
    std::string tokenizer;  ///< its name; empty: none is known, and there are no texts
};

/// At most `count` of each kind. `model`: what open_tokenizer() takes; empty: the one beside a data
/// set, or bytes if its documents end as those of bytes do. InputFileError for the tokenizer;
/// UsageError if the given one lacks tokens that are shown.
[[nodiscard]] SampleTexts sample_texts(const TrainingData& data, const SubsetReader& subset,
                                       const std::string& model, int64_t count);

/// The beginnings of these samples, of `seq_length` tokens each; without texts if no tokenizer is
/// known. Errors as above.
[[nodiscard]] std::vector<SampleText> texts_of_samples(const TrainingData& data, int64_t seq_length,
                                                       const std::string& model,
                                                       std::span<const int64_t> samples);

}  // namespace vocabpipe::tool
