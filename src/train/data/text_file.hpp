// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// Bytes of a text file. InputFileError if it cannot be read, is no regular file, or is compressed.
[[nodiscard]] int64_t text_file_bytes(const std::string& path);

/// Calls `take` with the file's bytes, block after block, without holding more than one.
/// Errors as text_file_bytes().
void read_text_file(const std::string& path, const std::function<void(std::string_view)>& take);

}  // namespace vocabpipe
