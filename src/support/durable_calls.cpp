// SPDX-License-Identifier: Apache-2.0
#include "src/support/durable_calls.hpp"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace vocabpipe {

int sync_descriptor(int file) {
    while (::fsync(file) != 0) {
        if (errno != EINTR) return errno;
    }
    return 0;
}

int rename_file(const std::string& from, const std::string& to) {
    struct stat before {};
    if (::lstat(from.c_str(), &before) != 0) return errno;
    if (std::rename(from.c_str(), to.c_str()) == 0) return 0;
    const int error = errno;
    struct stat after {};
    struct stat left {};
    const bool happened = ::lstat(to.c_str(), &after) == 0 && after.st_ino == before.st_ino &&
                          after.st_dev == before.st_dev && ::lstat(from.c_str(), &left) != 0;
    return happened ? 0 : error;
}

FileLock lock_file(int file) {
    while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return FileLock::of_another;
        if (errno != EINTR) return FileLock::unsupported;
    }
    return FileLock::held;
}

}  // namespace vocabpipe
