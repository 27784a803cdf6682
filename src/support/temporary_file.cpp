// SPDX-License-Identifier: Apache-2.0
#include "src/support/temporary_file.hpp"

#include "src/support/durable_calls.hpp"
#include "src/support/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartial = ".partial-";
constexpr int kMaxNames = 100;

/// "17-0"
bool is_number_pair(std::string_view text) {
    const size_t dash = text.find('-');
    const auto digits = [](std::string_view part) {
        return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    };
    return dash != std::string_view::npos && digits(text.substr(0, dash)) &&
           digits(text.substr(dash + 1));
}

/// Where locks are unsupported, the owner of a file is unknown, so it stays.
void remove_left_over(const std::string& path) {
    const fs::path target(path);
    const std::string begin = target.filename().string() + std::string(kPartial);
    const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        if (!name.starts_with(begin) ||
            !is_number_pair(std::string_view(name).substr(begin.size()))) {
            continue;
        }
        const int file = ::open(at->path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file < 0) continue;
        if (lock_file(file) == FileLock::held) ::unlink(at->path().c_str());
        ::close(file);
    }
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& path) : path_(path) {
    remove_left_over(path_);
    for (int attempt = 0; file_ < 0; ++attempt) {
        name_ = path_ + std::string(kPartial) + std::to_string(::getpid()) + "-" +
                std::to_string(attempt);
        file_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file_ < 0) {
            if (errno == EEXIST && attempt < kMaxNames) continue;
            throw_output_error(path_, "cannot create", errno);
        }
        // Another writer may have removed it as a leftover before it was locked.
        struct stat now {};
        if (lock_file(file_) == FileLock::of_another ||
            (::fstat(file_, &now) == 0 && now.st_nlink == 0)) {
            ::close(std::exchange(file_, -1));
        }
    }
}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : path_(std::move(other.path_)),
      name_(std::move(other.name_)),
      file_(std::exchange(other.file_, -1)) {}

TemporaryFile::~TemporaryFile() {
    if (file_ < 0) return;
    ::unlink(name_.c_str());
    ::close(file_);
}

void TemporaryFile::publish() {
    if (const int error = rename_file(name_, path_); error != 0) {
        throw_output_error(path_, "cannot create", error);
    }
    ::close(std::exchange(file_, -1));  // the file is durable, so closing cannot lose data
}

}  // namespace vocabpipe
