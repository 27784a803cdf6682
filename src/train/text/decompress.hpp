// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace vocabpipe {

/// Decompresses a file block after block. Memory does not depend on the size of the text: 1 MiB,
/// and for zstd the window of the file, at most 128 MiB.
class Decompressor {
public:
    using Take = std::function<void(std::string_view text)>;

    virtual ~Decompressor() = default;

    /// Takes the next bytes of the file and hands on their text in blocks of at most 1 MiB.
    /// InputFileError if they are damaged.
    virtual void feed(std::string_view bytes, const Take& take) = 0;
    /// InputFileError if the file ended too early.
    virtual void end() const = 0;
};

/// The decompressor for a file that begins with `head`: gzip (RFC 1952, several members, zero
/// padding) or zstd (RFC 8878, several frames). Null if the file is neither. `path` is for messages
/// and must outlive the result.
[[nodiscard]] std::unique_ptr<Decompressor> find_decompressor(const std::string& path,
                                                              std::string_view head);

}  // namespace vocabpipe
