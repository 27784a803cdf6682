// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe {

/// A new file beside `path`, PATH.partial-PID-N, which is locked as long as it is open. So whoever
/// writes `path` next knows what killed runs have left, and removes it: files of such a name that
/// nobody has locked. Move-only.
class TemporaryFile {
public:
    /// OutputFileError for `path`.
    explicit TemporaryFile(const std::string& path);
    /// Removes the file if it was not published.
    ~TemporaryFile();
    TemporaryFile(TemporaryFile&& other) noexcept;
    TemporaryFile& operator=(TemporaryFile&&) = delete;

    [[nodiscard]] const std::string& name() const { return name_; }
    /// For writing; open until the file is published or removed.
    [[nodiscard]] int descriptor() const { return file_; }

    /// Gives the file, which must be durable, the name `path`. OutputFileError.
    void publish();

private:
    std::string path_, name_;
    int file_ = -1;
};

}  // namespace vocabpipe
