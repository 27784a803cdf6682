// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/data_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

#include "src/support/lfs_pointer.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
    throw InputFileError(path + ": " + what + ": " + std::generic_category().message(error));
}

}  // namespace

DataFile::DataFile(std::string path) : path_(std::move(path)) {
    // O_NONBLOCK: else opening a pipe without a writer would block.
    file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file_ < 0) fail(path_, "cannot open", errno);
    struct stat status {};
    if (::fstat(file_, &status) != 0) {
        const int error = errno;
        close();
        fail(path_, "cannot open", error);
    }
    if (!S_ISREG(status.st_mode)) {
        close();
        throw InputFileError(path_ + ": is not a regular file" +
                             (S_ISDIR(status.st_mode) ? " but a folder" : ""));
    }
    size_ = static_cast<uint64_t>(status.st_size);
    if (!is_lfs_pointer(file_, size_)) return;
    close();
    throw InputFileError(lfs_pointer_message(path_));
}

DataFile::~DataFile() {
    close();
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(std::exchange(other.size_, 0)) {}

DataFile& DataFile::operator=(DataFile&& other) noexcept {
    if (this != &other) {
        close();
        path_ = std::move(other.path_);
        file_ = std::exchange(other.file_, -1);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

void DataFile::close() noexcept {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void DataFile::read(uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        const ssize_t got = ::pread(file_, out.data(), out.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(path_, "cannot read", errno);
        if (got == 0) {
            throw InputFileError(path_ + ": ends at byte " + std::to_string(offset) + ", but had " +
                                 std::to_string(size_) +
                                 " bytes when it was opened; it was truncated or replaced in "
                                 "place; use a complete file and do not change it during the run");
        }
        offset += static_cast<uint64_t>(got);
        out = out.subspan(static_cast<size_t>(got));
    }
}

std::vector<std::byte> DataFile::head(size_t count) const {
    std::vector<std::byte> bytes(static_cast<size_t>(std::min<uint64_t>(count, size_)));
    read(0, bytes);
    return bytes;
}

}  // namespace vocabpipe
