// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vocabpipe::imported {

/// Whether a log has timers of Megatron-LM of every rank.
[[nodiscard]] bool is_megatron_log(std::string_view text);

/// Pass times from a log of Megatron-LM with --timing-log-level 2 --timing-log-option all, with one
/// stage per rank: rows "rank,op,stage,ns" below a line that says so, the mean over all logged
/// iterations of forward-compute and backward-compute (ms of an iteration) over `microbatches`.
/// `name` stands for the file in messages. Throws InputFileError with the line, or if a rank lacks
/// one of the two.
[[nodiscard]] std::string megatron_pass_times(std::string_view text, const std::string& name,
                                              int microbatches);

}  // namespace vocabpipe::imported
