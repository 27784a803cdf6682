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

Descriptor open_to_read(const std::string& path) {
    // O_NONBLOCK: else opening a pipe without a writer would block.
    Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) fail(path, "cannot open", errno);
    return file;
}

struct stat status_of(const Descriptor& file, const std::string& path) {
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) fail(path, "cannot open", errno);
    return status;
}

/// Whether a file may stay open, by its number: the system gives the lowest one that is free.
bool may_stay_open(int file) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
    return static_cast<rlim_t>(file) < limit.rlim_cur - limit.rlim_cur / 4;
}

}  // namespace

DataFile::DataFile(std::string path) : path_(std::move(path)), file_(open_to_read(path_)) {
    const struct stat status = status_of(file_, path_);
    if (!S_ISREG(status.st_mode)) {
        throw InputFileError(path_ + ": is not a regular file" +
                             (S_ISDIR(status.st_mode) ? " but a folder" : ""));
    }
    size_ = static_cast<uint64_t>(status.st_size);
    device_ = status.st_dev;
    inode_ = status.st_ino;
    if (is_lfs_pointer(file_.get(), size_)) throw InputFileError(lfs_pointer_message(path_));
    if (!may_stay_open(file_.get())) file_.close();
}

Descriptor DataFile::open_again() const {
    Descriptor file = open_to_read(path_);
    const struct stat status = status_of(file, path_);
    if (status.st_dev == device_ && status.st_ino == inode_) return file;
    throw InputFileError(path_ +
                         ": was replaced by another file; this run has more data files than it "
                         "may have open (ulimit -n), so it opens this one anew for every read; do "
                         "not change it until the run ends");
}

void DataFile::read(uint64_t offset, std::span<std::byte> out) const {
    if (out.empty()) return;
    const Descriptor again = file_.get() < 0 ? open_again() : Descriptor();
    const int file = file_.get() < 0 ? again.get() : file_.get();
    while (!out.empty()) {
        const ssize_t got = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
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
