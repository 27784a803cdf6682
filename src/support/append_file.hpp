// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace vocabpipe {

/// A file that grows by whole records, each written out at once so that the file can be watched. A
/// record that cannot be written whole (disk full) is removed again and reported as
/// OutputFileError. If the file system has locks, a second process that opens the same file gets a
/// UsageError. If the file is removed meanwhile, a new one is made with the records that follow.
class AppendFile {
public:
    enum class Mode : uint8_t { begin_anew, go_on, must_be_new };
    /// `flag`: names the file in messages. With must_be_new, is_open() is false if the file exists
    /// already.
    AppendFile(std::string flag, std::string path, Mode mode);

    [[nodiscard]] bool is_open() const { return file_ != nullptr; }
    void add(std::string_view record);
    /// Closes the file; throws if that fails.
    void close();
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    /// Opens and locks; also truncates if `empties`.
    void take(int how, bool empties);
    [[nodiscard]] bool is_removed() const;
    [[noreturn]] void fail(const char* doing);
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::string flag_, path_;
    std::unique_ptr<std::FILE, Close> file_;
    int64_t whole_bytes_ = 0;
    bool regular_ = false;  ///< neither device nor pipe
};

/// Throws OutputFileError: "FLAG PATH: cannot DOING the file: reason of errno; remedy".
[[noreturn]] void throw_append_error(const std::string& flag, const std::string& path,
                                     const char* doing, int error);

}  // namespace vocabpipe
