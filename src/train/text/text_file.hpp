// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// Bytes of a file of text, or of a Parquet file, as it lies on the disk. InputFileError if it
/// cannot be read, is no regular file, or is compressed in another way than gzip's and zstd's.
[[nodiscard]] int64_t text_file_bytes(const std::string& path);

/// Whether a file is a table in Parquet's format, by its first bytes. InputFileError if it cannot
/// be read.
[[nodiscard]] bool is_parquet_file(const std::string& path);

/// Calls `take` with the file's text, block after block of at most 1 MiB, without holding more than
/// one; what gzip or zstd compressed is decompressed. Before the text of each part of the file,
/// `progress` gets the bytes of this part; it may be empty. Errors as text_file_bytes(), and
/// InputFileError for a Parquet file, and for compressed data that are damaged or cut off.
void read_text_file(const std::string& path, const std::function<void(std::string_view)>& take,
                    const std::function<void(int64_t bytes)>& progress = {});

}  // namespace vocabpipe
