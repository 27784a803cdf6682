// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/train/data/data_options.hpp"
#include "src/train/data/data_paths.hpp"
#include "src/train/data/data_split.hpp"
#include "src/train/data/sample_choice.hpp"
#include "src/train/data/sample_columns.hpp"
#include "vocabpipe/document_masks.hpp"
#include "vocabpipe/length_count.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// The opened token files of a run, and samples of each part of them:
///
///     const TrainingData data(options);
///     data.check(vocab_size);
///     const auto train = data.samples(DataSplit::train, {.seq_length = 1024, .seed = 1});
///     if (data.has(DataSplit::valid)) {
///         const auto valid = data.samples(DataSplit::valid, {.seq_length = 1024, .shuffle =
///         false});
///
/// A file that is named several times is opened, and read by check(), once.
class TrainingData {
public:
    /// UsageError for options that do not fit together, InputFileError for a file.
    explicit TrainingData(const DataOptions& options);

    /// True if the options give `split` data: a path of its own, or a positive part of --split.
    [[nodiscard]] bool has(DataSplit split) const;

    /// Opens the columns of so many samples.
    using OpenColumns = std::function<std::shared_ptr<const SampleColumns>(int64_t samples)>;

    /// The samples of `split`, with masks(), loss weights and packing, and with columns unless that
    /// is empty. In a blend, each data set is shuffled with its own key. `options.masks` is not
    /// used. UsageError if there is no such part, InputFileError if it is too small for one sample.
    /// The result does not depend on this object's lifetime. `lengths` as in PackingOptions.
    [[nodiscard]] std::unique_ptr<const SampleSource> samples(
        DataSplit split, const TokenDatasetOptions& options,
        const std::vector<int64_t>& lengths = {}, const OpenColumns& columns = {}) const;

    /// Pairs of training samples that follow one another in the stream, in shuffled order
    /// (PairedSamples), with columns. Errors as samples(); UsageError for a blend and for --split,
    /// which may cut a pair; InputFileError for a document that is not one sample.
    [[nodiscard]] std::unique_ptr<const SampleSource> pairs(const TokenDatasetOptions& options,
                                                            const std::vector<int64_t>& lengths,
                                                            const OpenColumns& columns) const;

    /// The lengths that training samples have by --length-buckets, ascending; seq_length alone
    /// without the flag. `cost` as in choose_length_buckets(), for auto. UsageError for lengths
    /// that do not fit.
    [[nodiscard]] std::vector<int64_t> length_buckets(
        int64_t seq_length, const std::function<double(int64_t)>& cost) const;

    /// How many training documents have each number of rows (PackedSamples), ascending; those of
    /// less than two tokens have none.
    [[nodiscard]] std::vector<LengthCount> document_lengths() const;

    /// Only the training samples in `chosen`, which must have been made of this data, with their
    /// `columns`; null: they have none. If these are all, they are samples() in their order.
    /// UsageError if `chosen` has no sample of a data set.
    [[nodiscard]] std::unique_ptr<const SampleSource> chosen_samples(
        const TokenDatasetOptions& options, const std::shared_ptr<const SampleChoice>& chosen,
        const std::shared_ptr<const SampleColumns>& columns = nullptr) const;

    /// All training samples in the order of their numbers: in stream order, one data set after the
    /// other. Ignores seed, shuffle and masks of `options`. `lengths` as in PackingOptions.
    [[nodiscard]] std::unique_ptr<const SampleSource> samples_in_order(
        const TokenDatasetOptions& options, const std::vector<int64_t>& lengths = {}) const;

    /// One data set of the training data, cut from its stream.
    struct TrainingSet {
        std::string path;                           ///< as given
        std::shared_ptr<const TokenSource> tokens;  ///< its training part
        int64_t samples = 0;                        ///< of `seq_length` tokens
        std::string identity;  ///< one line: its number of tokens, and a checksum of some of them
    };
    /// The data sets in the order of the flag. Errors as samples() if a set cannot be trained on.
    [[nodiscard]] std::vector<TrainingSet> training_sets(int64_t seq_length) const;

    /// Checks every file once: its tokens with check_tokens() and its loss weights with
    /// LossWeightsFile::check(), all of them or its share of kCheckedTokens.
    void check(int64_t vocab_size) const;

    /// The masks that the options ask for, with the token that ends a document if they or packing
    /// need it; UsageError if neither the options nor all files agree on one.
    [[nodiscard]] DocumentMasks masks() const;

    /// One line per data set: share, number of tokens, a checksum of some of them, and that of
    /// their loss weights. Equal on two hosts that have the same files, whatever their paths.
    [[nodiscard]] std::vector<std::string> fingerprint() const;

    /// All files that were opened.
    [[nodiscard]] std::vector<std::string> files() const;

    /// The flags that say which data this is, as "--flag value" with absolute paths, to compare
    /// with those of another run.
    [[nodiscard]] std::vector<std::string> flags() const;

private:
    struct Part {
        std::string flag;                 // "--data-path"
        std::vector<WeightedPath> paths;  // empty: there is none
    };
    /// The part of a file for `split`; InputFileError if it is empty.
    [[nodiscard]] std::shared_ptr<const TokenSource> tokens_of(const std::string& path,
                                                               DataSplit split) const;
    /// Its samples, cut or packed; `whole` as in PackingOptions.
    [[nodiscard]] std::unique_ptr<const SampleSource> open_set(const std::string& path,
                                                               DataSplit split,
                                                               const TokenDatasetOptions& options,
                                                               const std::vector<int64_t>& lengths,
                                                               bool whole = false) const;
    /// Options of samples with numbers: not shuffled, and with masks().
    [[nodiscard]] TokenDatasetOptions in_stream_order(TokenDatasetOptions options) const;
    /// The token that ends documents, for `flag`; UsageError as masks().
    [[nodiscard]] int32_t end_of_document(const std::string& flag) const;
    /// UsageError if the options give `split` no data.
    void require(DataSplit split) const;
    [[nodiscard]] const Part& part(DataSplit split) const {
        return parts_[static_cast<size_t>(split)];
    }
    [[nodiscard]] const std::shared_ptr<const TokenSource>& source(const std::string& path) const {
        return sources_.at(path);
    }

    DataOptions options_;
    SplitProportions proportions_;
    std::array<Part, kDataSplits.size()> parts_;
    std::map<std::string, std::shared_ptr<const TokenSource>> sources_;  // by path, as given
};

}  // namespace vocabpipe
