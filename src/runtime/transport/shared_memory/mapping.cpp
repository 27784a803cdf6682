// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/shared_memory/mapping.hpp"

#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

namespace vocabpipe::shared_memory {

namespace {

std::string text_of(int error) {
    return std::generic_category().message(error);
}

std::string new_name() {
    std::random_device random;
    std::string name = "/vocabpipe-" + std::to_string(::getpid());
    for (int i = 0; i < 3; ++i) name += "-" + std::to_string(random());
    return name;
}

/// Owns a file descriptor.
struct File {
    explicit File(int opened) : number(opened) {}
    ~File() {
        if (number >= 0) ::close(number);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int number;
};

}  // namespace

Mapping::~Mapping() {
    remove();
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

void Mapping::remove() noexcept {
    if (named_) ::shm_unlink(name_.c_str());
    named_ = false;
}

void Mapping::map(int file) {
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        throw CommunicationError("cannot map " + std::to_string(bytes_) +
                                 " bytes of /dev/shm: " + text_of(errno));
    }
    memory_ = static_cast<std::byte*>(memory);
}

std::unique_ptr<Mapping> Mapping::create(size_t bytes) {
    std::unique_ptr<Mapping> mapping(new Mapping(new_name(), bytes));
    const File file(::shm_open(mapping->name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    if (file.number < 0) {
        throw CommunicationError("cannot create a file in /dev/shm: " + text_of(errno));
    }
    mapping->named_ = true;
    // Without this, a full /dev/shm would end the rank that writes with SIGBUS.
    int error = EINTR;
    while (error == EINTR) {
        error = ::posix_fallocate(file.number, 0, static_cast<off_t>(bytes));
    }
    if (error != 0) {
        throw CommunicationError("/dev/shm has no room for " + std::to_string(bytes) +
                                 " bytes: " + text_of(error));
    }
    mapping->map(file.number);
    return mapping;
}

std::unique_ptr<Mapping> Mapping::open(const std::string& name, size_t bytes) {
    std::unique_ptr<Mapping> mapping(new Mapping(name, bytes));
    const File file(::shm_open(name.c_str(), O_RDWR, 0));
    struct stat status {};
    if (file.number < 0 || ::fstat(file.number, &status) != 0) {
        throw CommunicationError("cannot open /dev/shm" + name +
                                 " of another rank: " + text_of(errno));
    }
    if (static_cast<size_t>(status.st_size) != bytes) {
        throw CommunicationError("/dev/shm" + name + " has " + std::to_string(status.st_size) +
                                 " bytes, expected " + std::to_string(bytes));
    }
    mapping->map(file.number);
    return mapping;
}

}  // namespace vocabpipe::shared_memory
