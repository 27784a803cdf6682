// SPDX-License-Identifier: Apache-2.0
#include "src/support/partial_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/support/durable_calls.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

PartialFile::PartialFile(std::string path, int64_t keep)
    : buffer_(std::move(path), keep), name_(name_of(buffer_.path())) {
    const std::string& file = buffer_.path();
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) {
        throw_output_error(file, "cannot create", EISDIR);
    }
    if (std::filesystem::exists(file, ignored) &&
        !std::filesystem::is_regular_file(file, ignored)) {
        throw OutputFileError(file + ": is a device or a pipe; choose the name of a file");
    }
    open();
    const int error =
        ::ftruncate(file_, keep) != 0 || ::lseek(file_, keep, SEEK_SET) < 0 ? errno : 0;
    if (error == 0) return;
    ::close(std::exchange(file_, -1));
    throw_output_error(file, "cannot write", error);
}

void PartialFile::open() {
    while (file_ < 0) {
        file_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (file_ < 0) throw_output_error(path(), "cannot create", errno);
        if (lock_file(file_) == FileLock::of_another) {
            ::close(std::exchange(file_, -1));
            throw UsageError(name_ +
                             ": another process is writing it; wait for that process, or choose "
                             "another output");
        }
        // Another process may have published or removed it before it was locked.
        struct stat now {};
        if (::fstat(file_, &now) == 0 && now.st_nlink == 0) ::close(std::exchange(file_, -1));
    }
}

PartialFile::~PartialFile() {
    if (file_ < 0) return;
    ::unlink(name_.c_str());
    ::close(file_);
}

void PartialFile::sync() {
    if (durable_) return;
    buffer_.flush(file_);
    if (const int error = sync_descriptor(file_); error != 0) {
        throw_output_error(path(), "cannot write", error);
    }
    durable_ = true;
}

void PartialFile::read(int64_t offset, std::span<std::byte> out) {
    buffer_.flush(file_);
    while (!out.empty()) {
        const ssize_t got = ::pread(file_, out.data(), out.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) throw_output_error(path(), "cannot read back", got < 0 ? errno : EIO);
        offset += got;
        out = out.subspan(static_cast<size_t>(got));
    }
}

void PartialFile::publish() {
    sync();
    if (const int error = rename_file(name_, path()); error != 0) {
        throw_output_error(path(), "cannot create", error);
    }
    ::close(std::exchange(file_, -1));  // the file is durable, so closing cannot lose data
}

}  // namespace vocabpipe
