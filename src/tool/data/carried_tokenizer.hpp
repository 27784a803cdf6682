// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/output_check.hpp"
#include "src/support/tokenizer_files.hpp"

#include <map>
#include <set>
#include <string>
#include <utility>

namespace vocabpipe::tool {

/// The files of a tokenizer that lie beside PREFIX.bin, where runs find them and give copies to
/// their saved steps.
class CarriedTokenizer {
public:
    explicit CarriedTokenizer(std::string prefix) : prefix_(std::move(prefix)) {}

    /// Takes the files of a tokenizer (files_of_tokenizer()).
    void take_files(const TokenizerFiles& files);
    /// Takes a model of SentencePiece.
    void take_model(std::string model);

    /// Checks the places of all files that a tokenizer may have: what is there may only be of
    /// `kind`, or the one of `files` for that place.
    static void check(OutputCheck& check, const std::string& prefix, const TokenizerFiles& files,
                      const OutputKind& kind);
    /// Writes the files, and removes those that an older tokenizer had besides. Files that lie at
    /// their place already stay as they are.
    void publish() const;
    /// Removes what publish() wrote.
    void remove() const noexcept;

private:
    std::string prefix_;
    std::map<std::string, std::string> contents_;  ///< by path
    std::set<std::string> in_place_;               ///< paths of files that lie there already
};

}  // namespace vocabpipe::tool
