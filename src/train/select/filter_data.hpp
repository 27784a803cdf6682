// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/data_options.hpp"
#include "vocabpipe/token_type.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe {

/// Options of a copy; the comments name the flags of vocabpipe data filter.
struct FilterOptions {
    DataOptions data;            // its training part is copied
    int64_t seq_length = 0;      // --seq-length
    std::string subset;          // --subset
    std::string output;          // --output, a prefix; empty: no copy
    bool llmc = false;           // --format llmc: PREFIX.bin alone
    bool documents = false;      // --documents: whole documents that have a chosen sample
    std::string ids;             // --ids; empty: no list
    std::function<void()> poll;  ///< called between pieces; may throw
    std::function<void(int64_t done, int64_t all)> progress;  ///< in chosen samples
};

struct FilterTotals {
    int64_t samples = 0;     ///< chosen
    int64_t documents = -1;  ///< that have a chosen sample; -1: not counted
    int64_t tokens = 0;      ///< written
    int64_t bytes = 0;
    TokenType type = TokenType::u16;
};

/// Copies the chosen samples, or the documents that have one, in stream order, data set by data
/// set.
///
/// Without --documents each sample becomes a document of its seq_length inputs; after the last one
/// comes the token that follows it. So cutting the copy at the same stride gives the inputs of the
/// chosen samples; only a sample's last label may differ, if the next sample was not chosen.
///
/// The list has one document number per line, as in the data's index; with several data sets "SET
/// DOCUMENT", both from 0. A document has a sample if it contains one of the sample's inputs.
///
/// UsageError; InputFileError as ChosenSamples. Outputs appear when all is complete, and never
/// replace an input.
FilterTotals filter_data(const FilterOptions& options);

}  // namespace vocabpipe
