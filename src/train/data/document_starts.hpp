// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// Where every document of a stream begins, and at the end where the last one ends. They come from
/// the format's list of documents. A format without a list is read whole: documents end with the
/// token `end_of_document`, or with the stream.
[[nodiscard]] std::vector<int64_t> document_starts(const TokenSource& source,
                                                   int32_t end_of_document);

}  // namespace vocabpipe
