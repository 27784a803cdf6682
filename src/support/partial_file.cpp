// SPDX-License-Identifier: Apache-2.0
#include "src/support/partial_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/support/durable_calls.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr size_t kPartialBufferBytes = size_t{1} << 20;

}  // namespace

PartialFile::PartialFile(std::string path, int64_t keep)
    : path_(std::move(path)), name_(name_of(path_)), size_(keep) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path_, ignored)) {
        throw_output_error(path_, "cannot create", EISDIR);
    }
    if (std::filesystem::exists(path_, ignored) &&
        !std::filesystem::is_regular_file(path_, ignored)) {
        throw OutputFileError(path_ + ": is a device or a pipe; choose the name of a file");
    }
    buffer_.reserve(kPartialBufferBytes);
    open();
    const int error =
        ::ftruncate(file_, keep) != 0 || ::lseek(file_, keep, SEEK_SET) < 0 ? errno : 0;
    if (error == 0) return;
    ::close(std::exchange(file_, -1));
    throw_output_error(path_, "cannot write", error);
}

void PartialFile::open() {
    while (file_ < 0) {
        file_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (file_ < 0) throw_output_error(path_, "cannot create", errno);
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

void PartialFile::write(std::span<const std::byte> bytes) {
    durable_ = false;
    size_ += static_cast<int64_t>(bytes.size());
    while (!bytes.empty()) {
        const auto part = bytes.first(std::min(bytes.size(), kPartialBufferBytes - buffer_.size()));
        buffer_.insert(buffer_.end(), part.begin(), part.end());
        bytes = bytes.subspan(part.size());
        if (buffer_.size() == kPartialBufferBytes) flush();
    }
}

void PartialFile::flush() {
    for (size_t done = 0; done < buffer_.size();) {
        const ssize_t written = ::write(file_, buffer_.data() + done, buffer_.size() - done);
        if (written < 0 && errno != EINTR) throw_output_error(path_, "cannot write", errno);
        done += static_cast<size_t>(written > 0 ? written : 0);
    }
    buffer_.clear();
}

void PartialFile::sync() {
    if (durable_) return;
    flush();
    if (const int error = sync_descriptor(file_); error != 0) {
        throw_output_error(path_, "cannot write", error);
    }
    durable_ = true;
}

void PartialFile::read(int64_t offset, std::span<std::byte> out) {
    flush();
    while (!out.empty()) {
        const ssize_t got = ::pread(file_, out.data(), out.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) throw_output_error(path_, "cannot read back", got < 0 ? errno : EIO);
        offset += got;
        out = out.subspan(static_cast<size_t>(got));
    }
}

void PartialFile::publish() {
    sync();
    if (const int error = rename_file(name_, path_); error != 0) {
        throw_output_error(path_, "cannot create", error);
    }
    ::close(std::exchange(file_, -1));  // the file is durable, so closing cannot lose data
}

}  // namespace vocabpipe
