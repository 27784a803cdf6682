// SPDX-License-Identifier: Apache-2.0
#include "src/support/append_file.hpp"

#include "src/support/durable_calls.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <utility>

namespace vocabpipe {

void throw_append_error(const std::string& flag, const std::string& path, const char* doing,
                        int error) {
    throw OutputFileError(flag + " " + path + ": cannot " + doing +
                          " the file: " + std::strerror(error) +
                          (error == ENXIO ? "; nothing reads this pipe; start its reader first"
                                          : "; free space or choose another place"));
}

AppendFile::AppendFile(std::string flag, std::string path, Mode mode)
    : flag_(std::move(flag)), path_(std::move(path)) {
    take(mode == Mode::must_be_new ? O_EXCL : 0, mode == Mode::begin_anew);
}

void AppendFile::take(int how, bool empties) {
    const int file = open_without_waiting(path_, O_WRONLY | O_CREAT | O_APPEND | how);
    if (file >= 0) file_.reset(fdopen(file, "a"));
    if (!file_ && how == O_EXCL && errno == EEXIST) return;
    if (!file_) fail("create");
    std::setvbuf(file_.get(), nullptr, _IOFBF, 4096);
    struct stat status {};
    regular_ = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    if (!regular_) return;
    if (lock_file(file) == FileLock::of_another) {
        throw UsageError(flag_ + " " + path_ + ": another run is writing it; choose another file");
    }
    if (empties && ::ftruncate(file, 0) != 0) fail("empty");
    std::fseek(file_.get(), 0, SEEK_END);
    whole_bytes_ = std::ftell(file_.get());
}

bool AppendFile::is_removed() const {
    struct stat status {};
    return regular_ && ::fstat(fileno(file_.get()), &status) == 0 && status.st_nlink == 0;
}

void AppendFile::add(std::string_view record) {
    if (is_removed()) take(0, false);
    if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() ||
        std::fflush(file_.get()) != 0) {
        fail("write");
    }
    whole_bytes_ += static_cast<int64_t>(record.size());
}

void AppendFile::close() {
    if (std::fclose(file_.release()) != 0) fail("close");
}

void AppendFile::fail(const char* doing) {
    const int reason = errno;
    if (file_) {
        // Removes the incomplete record; a failure to do so is ignored.
        (void)!ftruncate(fileno(file_.get()), whole_bytes_);
    }
    throw_append_error(flag_, path_, doing, reason);
}

}  // namespace vocabpipe
