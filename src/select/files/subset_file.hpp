// SPDX-License-Identifier: Apache-2.0
// The chosen samples of a corpus (docs/data-selection.md).
#pragma once

#include "src/select/files/corpus.hpp"
#include "src/select/files/tensor_input.hpp"
#include "src/select/files/tensor_output.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

struct SubsetInfo {
    Corpus corpus;
    int64_t count = 0;  ///< number of chosen samples
    /// Further metadata: how they were chosen, and from which files.
    std::map<std::string, std::string> provenance;
};

/// Reads "vocabpipe subset 1": `sample` I64 [count], strictly ascending numbers in [0,
/// corpus.samples). Reads on demand and keeps nothing in memory.
class SubsetReader {
public:
    /// InputFileError unless type and shape are as above. The numbers are checked as they are read.
    explicit SubsetReader(const std::string& path);

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const SubsetInfo& info() const { return info_; }
    [[nodiscard]] int64_t count() const { return info_.count; }

    /// Chosen samples from position `first` on. InputFileError if the file ends early, or if these
    /// numbers and the one before them do not ascend or are not in the corpus. Safe from several
    /// threads.
    void read(int64_t first, std::span<int64_t> to) const;
    /// All of them.
    [[nodiscard]] std::vector<int64_t> all() const;
    /// CRC-32C of the numbers, little-endian: equal for equal choices, however they were made.
    /// Reads and so checks all of them, 64 KiB at a time.
    [[nodiscard]] uint32_t checksum() const;
    /// The first position whose sample is at least `sample`; count() if there is none.
    [[nodiscard]] int64_t position_of(int64_t sample) const;

private:
    TensorInput file_;
    const StoredTensor* samples_;
    SubsetInfo info_;
};

/// Writes such a file; ranks write parts of it.
class SubsetWriter {
public:
    /// Reserves the file; `info` is the same on every rank. `scratch`: as for TensorOutput.
    /// Collective. OutputFileError.
    SubsetWriter(Communicator& world, const std::string& path, const SubsetInfo& info,
                 const std::string& scratch = {});

    /// Writes from position `first` on. std::invalid_argument for numbers that SubsetReader
    /// refuses; that numbers also ascend from part to part is up to the caller.
    void write(int64_t first, std::span<const int64_t> samples);
    /// Renames the file, after every position was written. Collective.
    void publish() { file_.publish(); }

private:
    int64_t corpus_samples_;
    TensorOutput file_;
};

}  // namespace vocabpipe
