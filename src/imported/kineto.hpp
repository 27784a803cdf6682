// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/named_range.hpp"

#include <string>
#include <string_view>

namespace vocabpipe::imported {

/// Whether the beginning of a file looks like a trace of torch.profiler: JSON with "traceEvents"
/// and without the header of a trace of VocabPipe.
[[nodiscard]] bool is_kineto(std::string_view head);

/// Reads a trace that torch.profiler's export_chrome_trace() wrote (Chrome's trace events): events
/// of kind X with a name, of the categories gpu_user_annotation, if there are any, else of
/// user_annotation and cpu_op. Times are microseconds since "baseTimeNanoseconds". Where the file
/// says so, it has the rank ("distributedInfo") and the host ("host_name"). `name` stands for the
/// file in messages. Throws InputFileError with line and column, or the number of the event.
[[nodiscard]] RankRanges read_kineto(std::string_view text, const std::string& name);

}  // namespace vocabpipe::imported
