// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/named_range.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::imported {

/// Whether the beginning of a file is that of a table of operations: CSV with a column "optype".
[[nodiscard]] bool is_operations(std::string_view head);

/// Reads a table of operations as StragglerAnalysis (ByteDance, "Understanding Stragglers in Large
/// Model Training Using What-if Analysis") published it, saved as CSV. Columns in any order, others
/// are left out: dp_rank, stage (the pipeline rank), step, optype, start_ts and duration in seconds
/// (start_ts since the begin of the step), seq_id (counts the operations of a type on a rank and
/// step), mb_id and gmc (microbatch and stage of the whole model, of passes). Takes the
/// forward-compute and backward-compute of one replica and, where every rank has one stage, the
/// -recv and -send, which belong to the pass with the number seq_id. Steps follow each other in the
/// order of their numbers. Returns the ranks in order, with ranges that the rules `operations`
/// read. Throws InputFileError with the line, UsageError for a replica that is not there.
[[nodiscard]] std::vector<RankRanges> read_operations(std::string_view text,
                                                      const std::string& name, int replica);

}  // namespace vocabpipe::imported
