// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace vocabpipe {

/// The samples that a file of scores, edges or chosen samples describes: those of a token stream
/// cut at stride seq_length, numbered in stream order (docs/data-selection.md).
struct Corpus {
    std::string data;        ///< identity of the tokens: training_corpus(), a line per data set
    int64_t seq_length = 0;  ///< tokens of a sample; 0: unknown (embeddings from elsewhere)
    int64_t samples = 0;

    bool operator==(const Corpus&) const = default;

    /// Adds the keys of a file's metadata for these members.
    void write_to(std::map<std::string, std::string>& metadata) const;
    /// Reads them from a file's metadata. InputFileError if a key is missing or wrong; `path` names
    /// the file.
    [[nodiscard]] static Corpus read_from(const std::map<std::string, std::string>& metadata,
                                          const std::string& path);
    /// InputFileError with the difference unless both files describe the same samples. Values
    /// unknown to one of them match any.
    static void check_same(const Corpus& a, const std::string& path_a, const Corpus& b,
                           const std::string& path_b);
};

}  // namespace vocabpipe
