// SPDX-License-Identifier: Apache-2.0
#include "src/support/output_file.hpp"

#include "vocabpipe/error.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace vocabpipe {

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".tmp" + std::to_string(getpid())) {
    file_.reset(std::fopen(temporary_.c_str(), "wb"));
    if (!file_) fail("create");
}

OutputFile::~OutputFile() {
    if (!file_) return;
    file_.reset();
    std::remove(temporary_.c_str());
}

void OutputFile::write(const void* data, size_t bytes) {
    if (bytes > 0 && std::fwrite(data, 1, bytes, file_.get()) != bytes) fail("write");
}

void OutputFile::commit() {
    if (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0) fail("write");
    if (std::fclose(file_.release()) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
        const int reason = errno;
        std::remove(temporary_.c_str());
        errno = reason;
        fail("finish");
    }
}

void OutputFile::fail(const char* doing) {
    const int reason = errno;
    std::string message = path_ + ": cannot " + doing + " the file: " + std::strerror(reason);
    if (reason == ENOSPC || reason == EDQUOT) message += "; free space or choose another folder";
    throw OutputFileError(message);
}

void make_directories(const std::string& path, std::string_view flag) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) {
        throw OutputFileError(std::string(flag) + " " + path + ": cannot create the folder: " +
                              error.message());
    }
}

}  // namespace vocabpipe
