// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/support/temporary_file.hpp"
#include "src/support/write_buffer.hpp"

namespace vocabpipe {

/// open() that does not wait for a pipe's reader: without a reader it returns -1 with errno ENXIO.
/// Writes to the file still wait.
[[nodiscard]] int open_without_waiting(const std::string& path, int flags);

/// A file that appears under its name only when it is complete. Bytes go to a temporary name in the
/// same folder; publish() renames it. Every failure is an OutputFileError with the file and the
/// reason; destroying an unpublished object removes its file. Devices and pipes (/dev/null) are
/// written directly, as a rename would replace them.
class OutputFile {
public:
    /// Creates the temporary file.
    explicit OutputFile(std::string path);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    /// Appends; buffered.
    void write(std::span<const std::byte> bytes) { buffer_.write(file_, bytes); }
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

    /// Flushes the buffer, makes the file durable and closes it. Write nothing afterwards.
    void sync();

    /// Renames the file, replacing an older one. Calls sync() first if needed.
    void publish();

    [[nodiscard]] const std::string& path() const { return buffer_.path(); }
    /// Bytes given to write() so far.
    [[nodiscard]] int64_t size() const { return buffer_.size(); }

private:
    WriteBuffer buffer_;
    std::optional<TemporaryFile> temporary_;  ///< none: a device or a pipe
    int file_ = -1;                           ///< -1: closed
};

/// Throws OutputFileError "PATH: WHAT: reason of errno `error`: remedy".
[[noreturn]] void throw_output_error(const std::string& path, const char* what, int error);

/// Creates the folder `path` and its parents, durably; OutputFileError names the flag that asked
/// for it.
void make_directories(const std::string& path, std::string_view flag);

/// Makes renames in the folder of `path` durable, if the file system supports that; OutputFileError
/// if it fails.
void sync_folder_of(const std::string& path);

}  // namespace vocabpipe
