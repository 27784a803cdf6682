// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/named_range.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::imported {

/// Whether the beginning of a file is that of OpenTelemetry spans in OTLP's JSON.
[[nodiscard]] bool is_otlp(std::string_view head);

/// Reads spans of OpenTelemetry as its file exporter writes them (OTLP JSON, one or several
/// documents, each on its line): names and times in ns of the spans of every resource. A resource's
/// attribute "rank" says its rank, else "host.name" its host alone; resources of one rank belong
/// together. `name` stands for the file in messages. Throws InputFileError naming the line.
[[nodiscard]] std::vector<RankRanges> read_otlp(std::string_view text, const std::string& name);

}  // namespace vocabpipe::imported
