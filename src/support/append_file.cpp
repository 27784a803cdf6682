// SPDX-License-Identifier: Apache-2.0
#include "src/support/append_file.hpp"

#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
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
    const int how = mode == Mode::go_on ? O_APPEND : mode == Mode::begin_anew ? O_TRUNC : O_EXCL;
    const int file = open_without_waiting(path_, O_WRONLY | O_CREAT | how);
    if (file >= 0) file_.reset(fdopen(file, mode == Mode::go_on ? "a" : "w"));
    if (!file_ && mode == Mode::must_be_new && errno == EEXIST) return;
    if (!file_) fail("create");
    std::setvbuf(file_.get(), nullptr, _IOFBF, 4096);
    if (mode != Mode::go_on) return;
    std::fseek(file_.get(), 0, SEEK_END);
    whole_bytes_ = std::ftell(file_.get());
}

void AppendFile::add(std::string_view record) {
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
        // No half record stays behind; what cannot be cut off cannot be helped.
        (void)!ftruncate(fileno(file_.get()), whole_bytes_);
    }
    throw_append_error(flag_, path_, doing, reason);
}

}  // namespace vocabpipe
