// SPDX-License-Identifier: Apache-2.0
#include "src/support/input_file.hpp"

#include "src/support/lfs_pointer.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
    throw InputFileError(path + ": " + what + ": " + std::generic_category().message(error));
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
    file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
    if (file_ < 0) fail(path_, "cannot open", errno);
    struct stat status {};
    const bool known = ::fstat(file_, &status) == 0;
    if (known && S_ISREG(status.st_mode)) {
        identity_ = {.device = static_cast<uint64_t>(status.st_dev),
                     .number = static_cast<uint64_t>(status.st_ino),
                     .size = static_cast<uint64_t>(status.st_size)};
        if (!is_lfs_pointer(file_, size())) return;
        ::close(file_);
        throw InputFileError(lfs_pointer_message(path_));
    }
    const int error = errno;
    ::close(file_);
    if (!known) fail(path_, "cannot open", error);
    throw InputFileError(path_ + ": is not a regular file" +
                         (S_ISDIR(status.st_mode) ? " but a folder" : ""));
}

InputFile::~InputFile() {
    if (file_ >= 0) ::close(file_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      identity_(other.identity_) {}

void InputFile::read(uint64_t offset, std::span<std::byte> to) const {
    while (!to.empty()) {
        const ssize_t found = ::pread(file_, to.data(), to.size(), static_cast<off_t>(offset));
        if (found < 0 && errno == EINTR) continue;
        if (found < 0) fail(path_, "cannot read", errno);
        if (found == 0) {
            throw InputFileError(
                path_ + ": ends at byte " + std::to_string(offset) + ", but had " +
                std::to_string(size()) +
                " bytes before; another process changed it; copy or download it again");
        }
        to = to.subspan(static_cast<size_t>(found));
        offset += static_cast<uint64_t>(found);
    }
}

std::string InputFile::text() const {
    if (size() > kMostTextBytes) {
        throw InputFileError(path_ + ": has " + std::to_string(size()) +
                             " bytes, but a text file may have at most " +
                             std::to_string(kMostTextBytes) +
                             "; the file is not what its name suggests; copy or download it again");
    }
    std::string text(size(), '\0');
    read(0, std::as_writable_bytes(std::span(text)));
    return text;
}

}  // namespace vocabpipe
