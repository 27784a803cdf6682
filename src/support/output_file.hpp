// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace vocabpipe {

/// A file that appears under its name only when it is complete: written to a temporary name in the same
/// folder, flushed to disk and renamed by commit(). Without commit() nothing remains. Every failure is
/// an OutputFileError with the file, the reason and what to do.
class OutputFile {
public:
    explicit OutputFile(std::string path);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(const void* data, size_t bytes);
    void write(std::string_view text) { write(text.data(), text.size()); }
    void commit();

private:
    [[noreturn]] void fail(const char* doing);
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::string path_;
    std::string temporary_;
    std::unique_ptr<std::FILE, Close> file_;
};

/// Creates `path` and its parents; throws OutputFileError naming the flag that asked for it.
void make_directories(const std::string& path, std::string_view flag);

}  // namespace vocabpipe
