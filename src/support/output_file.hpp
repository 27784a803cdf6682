// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/support/temporary_file.hpp"

namespace vocabpipe {

/// open(), which waits for a pipe's reader: without one it is -1 with errno ENXIO here. Writes
/// wait.
[[nodiscard]] int open_without_waiting(const std::string& path, int flags);

/// A file that appears under its name only when it is complete. Bytes go to a temporary name in the
/// same folder; publish() renames. Every failure is an OutputFileError with the file and the
/// reason; a file not published is removed with the object. Devices and pipes (/dev/null) are
/// written directly: a rename would replace them.
class OutputFile {
public:
    /// Creates the temporary file.
    explicit OutputFile(std::string path);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    /// Appends; buffered.
    void write(std::span<const std::byte> bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

    /// Writes out what is buffered, makes it durable and closes. Nothing may be written afterwards.
    void sync();

    /// Gives the file its name, replacing an older one. Calls sync() if that was not done.
    void publish();

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Bytes given to write() so far.
    [[nodiscard]] int64_t size() const { return size_; }

private:
    void flush();

    std::string path_;
    std::optional<TemporaryFile> temporary_;  ///< none: a device or a pipe
    std::vector<std::byte> buffer_;
    int64_t size_ = 0;
    int file_ = -1;  ///< none: nothing may be written any more
};

/// "PATH: WHAT: reason of `error`, an errno: remedy" as an OutputFileError.
[[noreturn]] void throw_output_error(const std::string& path, const char* what, int error);

/// Creates the folder `path` and its parents, durably; OutputFileError names the flag that asked
/// for it.
void make_directories(const std::string& path, std::string_view flag);

/// Makes renames in the folder of `path` durable, where the file system knows of such a thing;
/// OutputFileError if it fails.
void sync_folder_of(const std::string& path);

}  // namespace vocabpipe
