// SPDX-License-Identifier: Apache-2.0
// What is known of every sample of a corpus before some are chosen (docs/data-selection.md).
#pragma once

#include "src/select/files/corpus.hpp"
#include "src/select/files/tensor_input.hpp"
#include "src/select/files/tensor_output.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace vocabpipe {

/// What a file of scores holds of n = corpus.samples samples.
struct ScoresInfo {
    Corpus corpus;
    /// What the utility is: margin, loss or perplexity, or what its source calls it. Empty: the
    /// file has no utilities.
    std::string utility_kind;
    int64_t hidden_size = 0;  ///< elements of an embedding; 0: the file has none
    bool loss = false;        ///< whether it has losses
    /// Further text of the metadata: where the scores come from.
    std::map<std::string, std::string> provenance;
};

/// Reads "vocabpipe scores 1" by parts: `utility` I32 [n], integers of 2^-20; `embedding` F32 [n,
/// h]; `loss` F32 [n], mean nats per counted token. Each may be missing, but not all. Memory: the
/// caller's.
class ScoresReader {
public:
    /// InputFileError unless types and shapes are these.
    explicit ScoresReader(const std::string& path);

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const ScoresInfo& info() const { return info_; }
    [[nodiscard]] int64_t samples() const { return info_.corpus.samples; }

    // Of the samples from `first` on. InputFileError if the file lacks the tensor, ends early, or
    // holds a value that it may not: a negative utility, an embedding or a loss that is no finite
    // number. Threads may read at the same time.
    void read_utility(int64_t first, std::span<int32_t> to) const;
    /// `to`: whole rows.
    void read_embedding(int64_t first, std::span<float> to) const;
    void read_loss(int64_t first, std::span<float> to) const;

private:
    TensorInput file_;
    ScoresInfo info_;
};

/// Writes such a file: every rank the rows that it has, in any order.
class ScoresWriter {
public:
    /// Makes room for it; `info` is the same on every rank. Collective. OutputFileError.
    ScoresWriter(Communicator& world, const std::string& path, const ScoresInfo& info);

    // Of the samples from `first` on; what ScoresReader would refuse is std::invalid_argument.
    void write_utility(int64_t first, std::span<const int32_t> values);
    /// `rows`: whole rows.
    void write_embedding(int64_t first, std::span<const float> rows);
    void write_loss(int64_t first, std::span<const float> values);
    /// Gives the file its name, after every row was written. Collective.
    void publish() { file_.publish(); }

private:
    int64_t hidden_size_;
    TensorOutput file_;
};

}  // namespace vocabpipe
