// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/data_options.hpp"
#include "vocabpipe/token_type.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe {

/// What is copied where; the comments name the flags of vocabpipe data filter.
struct FilterOptions {
    DataOptions data;            // of which its training part is looked at
    int64_t seq_length = 0;      // --seq-length
    std::string subset;          // --subset
    std::string output;          // --output, a prefix; empty: no copy
    bool llmc = false;           // --format llmc: PREFIX.bin alone
    bool documents = false;      // --documents: whole ones that have a chosen sample
    std::string ids;             // --ids; empty: no list
    std::function<void()> poll;  ///< called between pieces; may throw
    std::function<void(int64_t done, int64_t all)> progress;  ///< in chosen samples
};

struct FilterTotals {
    int64_t samples = 0;     ///< chosen
    int64_t documents = -1;  ///< that have a chosen sample; -1: was not asked for
    int64_t tokens = 0;      ///< written
    int64_t bytes = 0;
    TokenType type = TokenType::u16;
};

/// Copies the chosen samples, or the documents that have one, in stream order, data set by data
/// set.
///
/// Without --documents a sample is written as its seq_length inputs, a document of its own, and
/// behind the last one the token that follows it: so cutting the copy at the same stride gives the
/// inputs of the chosen samples, and only the last label of a sample may be another one, where the
/// next sample was not chosen.
///
/// The list has the number of a document per line, as the data's index counts them; of several data
/// sets "SET DOCUMENT", both from 0. A document has a sample if one of the sample's inputs is its.
///
/// UsageError, InputFileError as ChosenSamples; nothing is there until all is complete, and no
/// input is ever replaced.
FilterTotals filter_data(const FilterOptions& options);

}  // namespace vocabpipe
