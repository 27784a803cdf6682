// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/data_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
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

int open_to_read(const std::string& path) {
    // O_NONBLOCK: else opening a pipe without a writer would block.
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) fail(path, "cannot open", errno);
    return file;
}

struct stat status_of(int file, const std::string& path) {
    struct stat status {};
    if (::fstat(file, &status) != 0) fail(path, "cannot open", errno);
    return status;
}

/// Whether a file may stay open, by its number: the system gives the lowest one that is free.
bool may_stay_open(int file) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
    return static_cast<rlim_t>(file) < limit.rlim_cur - limit.rlim_cur / 4;
}

}  // namespace

/// The descriptor for one read.
class DataFile::Opened {
public:
    explicit Opened(const DataFile& file)
        : file_(file.file_ >= 0 ? file.file_ : open_to_read(file.path_)), owned_(file.file_ < 0) {
        if (!owned_) return;
        struct stat status {};
        const int error = ::fstat(file_, &status) != 0 ? errno : 0;
        if (error == 0 && status.st_dev == file.device_ && status.st_ino == file.inode_) return;
        ::close(file_);
        if (error != 0) fail(file.path_, "cannot open", error);
        throw InputFileError(file.path_ +
                             ": was replaced by another file; this run has more data files than it "
                             "may have open (ulimit -n), so it opens this one anew for every "
                             "read; do not change it until the run ends");
    }
    ~Opened() {
        if (owned_) ::close(file_);
    }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    [[nodiscard]] int descriptor() const { return file_; }

private:
    int file_;
    bool owned_;
};

DataFile::DataFile(std::string path) : path_(std::move(path)), file_(open_to_read(path_)) {
    try {
        const struct stat status = status_of(file_, path_);
        if (!S_ISREG(status.st_mode)) {
            throw InputFileError(path_ + ": is not a regular file" +
                                 (S_ISDIR(status.st_mode) ? " but a folder" : ""));
        }
        size_ = static_cast<uint64_t>(status.st_size);
        device_ = status.st_dev;
        inode_ = status.st_ino;
        if (is_lfs_pointer(file_, size_)) throw InputFileError(lfs_pointer_message(path_));
    } catch (...) {
        close();
        throw;
    }
    if (!may_stay_open(file_)) close();
}

DataFile::~DataFile() {
    close();
}

DataFile::DataFile(DataFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      inode_(other.inode_) {}

DataFile& DataFile::operator=(DataFile&& other) noexcept {
    if (this != &other) {
        close();
        path_ = std::move(other.path_);
        file_ = std::exchange(other.file_, -1);
        size_ = std::exchange(other.size_, 0);
        device_ = other.device_;
        inode_ = other.inode_;
    }
    return *this;
}

void DataFile::close() noexcept {
    if (file_ >= 0) ::close(std::exchange(file_, -1));
}

void DataFile::read(uint64_t offset, std::span<std::byte> out) const {
    if (out.empty()) return;
    const Opened opened(*this);
    while (!out.empty()) {
        const ssize_t got =
            ::pread(opened.descriptor(), out.data(), out.size(), static_cast<off_t>(offset));
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
