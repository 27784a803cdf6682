// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/corpus.hpp"
#include "src/select/files/subset_file.hpp"
#include "src/train/data/sample_choice.hpp"
#include "src/train/data/training_data.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace vocabpipe {

/// The training samples of `data`, as files of vocabpipe select name them: a line for each data
/// set, whatever its share in a blend and wherever its files are.
[[nodiscard]] Corpus training_corpus(const TrainingData& data, int64_t seq_length);

/// The samples of a subset file. They are read from it one at a time, through the page cache that
/// all ranks of a machine share: a run needs 8 bytes where it reads kilobytes of tokens, and no
/// memory that grows with the subset. A file that changes is an InputFileError, or ends the run
/// with numbers that do not ascend; a mapped one would end the process.
class ChosenSamples final : public SampleChoice {
public:
    /// Opens `path`, the value of `flag`. InputFileError if it was made from other samples
    /// than `data` has, if its numbers are not in order, or if there are none.
    ChosenSamples(const std::string& flag, const std::string& path, const TrainingData& data,
                  int64_t seq_length);

    [[nodiscard]] int64_t position_of(int64_t sample) const override {
        return file_.position_of(sample);
    }
    [[nodiscard]] int64_t sample(int64_t position) const override;

    /// "K of N samples, checksum X": equal for equal choices.
    [[nodiscard]] const std::string& identity() const { return identity_; }

private:
    SubsetReader file_;
    std::string identity_;
};

}  // namespace vocabpipe
