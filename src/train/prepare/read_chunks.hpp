// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "src/train/prepare/text_chunk.hpp"
#include "src/train/text/document_splitter.hpp"
#include "src/train/text/text_input.hpp"

namespace vocabpipe {

/// Reads input `index` of `inputs`, cuts plain text into documents and their pieces, JSON into
/// lines and Parquet into rows, and hands on chunks of them. The last one has ends_input, and may
/// be empty. Holds one chunk and one line, or what read_parquet_texts() holds. `poll` is called for
/// every MiB of text or batch of rows and may throw. Errors as read_text_file() and
/// read_parquet_texts().
void read_chunks(const std::vector<TextInput>& inputs, size_t index, DocumentSeparator separator,
                 const std::function<void(TextChunk)>& take, const std::function<void()>& poll);

}  // namespace vocabpipe
