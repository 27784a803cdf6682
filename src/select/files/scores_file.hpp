// SPDX-License-Identifier: Apache-2.0
// Scores of every sample of a corpus, the input of a selection (docs/data-selection.md).
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

/// Contents of a scores file with n = corpus.samples samples.
struct ScoresInfo {
    Corpus corpus;
    /// The kind of utility: margin, loss or perplexity, or its source's name for it. Empty: the
    /// file has no utilities.
    std::string utility_kind;
    int64_t hidden_size = 0;  ///< length of an embedding; 0: the file has none
    bool loss = false;        ///< whether it has losses
    /// Further metadata: where the scores come from.
    std::map<std::string, std::string> provenance;
};

/// Reads "vocabpipe scores 1" in parts: `utility` I32 [n], integers of 2^-20; `embedding` F32 [n,
/// h]; `loss` F32 [n], mean nats per counted token. Any of them may be missing, but not all. Uses
/// only the caller's memory.
class ScoresReader {
public:
    /// InputFileError unless types and shapes are as above.
    explicit ScoresReader(const std::string& path);

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const ScoresInfo& info() const { return info_; }
    [[nodiscard]] int64_t samples() const { return info_.corpus.samples; }

    // Values of the samples from `first` on. InputFileError if the file lacks the tensor, ends
    // early, or holds a forbidden value: a negative utility, or an embedding or loss that is not
    // finite. Safe from several threads.
    void read_utility(int64_t first, std::span<int32_t> to) const;
    /// `to`: whole rows.
    void read_embedding(int64_t first, std::span<float> to) const;
    void read_loss(int64_t first, std::span<float> to) const;

private:
    TensorInput file_;
    ScoresInfo info_;
};

/// Writes such a file: every rank writes its rows, in any order.
class ScoresWriter {
public:
    /// Reserves the file; `info` is the same on every rank. Collective. OutputFileError.
    ScoresWriter(Communicator& world, const std::string& path, const ScoresInfo& info);

    // Values of the samples from `first` on; std::invalid_argument for values that ScoresReader
    // refuses.
    void write_utility(int64_t first, std::span<const int32_t> values);
    /// `rows`: whole rows.
    void write_embedding(int64_t first, std::span<const float> rows);
    void write_loss(int64_t first, std::span<const float> values);
    /// Renames the file, after every row was written. Collective.
    void publish() { file_.publish(); }

private:
    int64_t hidden_size_;
    TensorOutput file_;
};

}  // namespace vocabpipe
