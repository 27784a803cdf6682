// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

namespace {

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
    throw InputFileError(path + ": " + what + ": " + std::generic_category().message(error));
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
    const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        fail(path_, "cannot open", errno);
    }
    struct stat status {};
    if (::fstat(file, &status) != 0) {
        const int error = errno;
        ::close(file);
        fail(path_, "cannot open", error);
    }
    if (!S_ISREG(status.st_mode)) {
        ::close(file);
        throw InputFileError(path_ + ": not a regular file" +
                             (S_ISDIR(status.st_mode) ? " but a folder" : ""));
    }
    size_ = static_cast<uint64_t>(status.st_size);
    if (size_ > 0) {
        void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
        const int error = errno;
        if (address == MAP_FAILED) {
            ::close(file);
            fail(path_, "cannot map into memory", error);
        }
        data_ = static_cast<const std::byte*>(address);
    }
    ::close(file);
}

MappedFile::~MappedFile() {
    unmap();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    if (this != &other) {
        unmap();
        path_ = std::move(other.path_);
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

void MappedFile::unmap() noexcept {
    if (data_ != nullptr) {
        ::munmap(const_cast<std::byte*>(data_), size_);
    }
}

}  // namespace vocabpipe
