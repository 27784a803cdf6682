// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/score/forward_options.hpp"
#include "vocabpipe/token_record.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Options of scoring tokens.
struct TokenScoreOptions : ForwardOptions {
    TokenRecordOptions records;  // --records, --temperature
};

/// Summary of a file of records.
struct TokenScoreTotals {
    int64_t samples = 0;
    int64_t labels = 0;  ///< tokens whose label counts
    /// Over them, of each record of one number, in the order of TokenRecords.
    std::vector<double> means;
};

/// Writes the records of every token of the training data under a saved model (open_score_file()).
/// In each pipeline, the rank with the records writes the rows of its samples as steps end. The
/// file appears when it is complete. Collective; errors are agreed on. The totals are the same on
/// every rank.
TokenScoreTotals score_tokens(Communicator& world, const TokenScoreOptions& options);

}  // namespace vocabpipe
