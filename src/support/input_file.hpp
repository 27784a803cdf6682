// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vocabpipe {

/// Far above the JSON of the largest models; a larger file is of another kind, or malicious.
inline constexpr uint64_t kMostTextBytes = 100'000'000;

/// A regular file that is read at given offsets. Every failure, even of the disk or of a file
/// truncated meanwhile, is an InputFileError; a mapped file would end the process.
class InputFile {
public:
    /// Equal identities: the same file, with the same size.
    struct Identity {
        uint64_t device = 0, number = 0, size = 0;
        bool operator==(const Identity&) const = default;
    };

    explicit InputFile(std::string path);
    ~InputFile();
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Bytes when it was opened.
    [[nodiscard]] uint64_t size() const { return identity_.size; }
    [[nodiscard]] const Identity& identity() const { return identity_; }
    /// Fills `to` from `offset` on. Safe from several threads.
    void read(uint64_t offset, std::span<std::byte> to) const;
    /// The whole file, up to kMostTextBytes.
    [[nodiscard]] std::string text() const;

private:
    std::string path_;
    int file_ = -1;
    Identity identity_;
};

}  // namespace vocabpipe
