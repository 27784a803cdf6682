// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe {

/// A new file next to `path`, PATH.partial-PID-N, locked as long as it is open. The next writer of
/// `path` removes the files of such names that nobody has locked, which killed runs have left.
/// Move-only.
class TemporaryFile {
public:
    /// OutputFileError with `path`.
    explicit TemporaryFile(const std::string& path);
    /// Removes the file if it was not published.
    ~TemporaryFile();
    TemporaryFile(TemporaryFile&& other) noexcept;
    TemporaryFile& operator=(TemporaryFile&&) = delete;

    [[nodiscard]] const std::string& name() const { return name_; }
    /// For writing; open until the file is published or removed.
    [[nodiscard]] int descriptor() const { return file_; }

    /// Renames the file, which must be durable, to `path`. OutputFileError.
    void publish();

private:
    std::string path_, name_;
    int file_ = -1;
};

}  // namespace vocabpipe
