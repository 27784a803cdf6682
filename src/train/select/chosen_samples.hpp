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

/// The identity of the training samples of `data` in files of vocabpipe select: one line per data
/// set, whatever its share in a blend and wherever its files are.
[[nodiscard]] Corpus training_corpus(const TrainingData& data, int64_t seq_length);

/// The samples of a subset file. They are read from it one at a time, through the page cache that
/// all ranks of a machine share: a sample costs 8 bytes next to kilobytes of tokens, and memory
/// does not grow with the subset. If the file changes, that is an InputFileError, or numbers that
/// do not ascend end the run; a mapped file would end the process.
class ChosenSamples final : public SampleChoice {
public:
    /// Opens `path`, the value of `flag`. InputFileError if it was made from other samples than
    /// `data` has, if its numbers are not in order, or if it has none.
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
