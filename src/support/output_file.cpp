// SPDX-License-Identifier: Apache-2.0
#include "src/support/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/support/durable_calls.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

void throw_output_error(const std::string& path, const char* what, int error) {
    std::string remedy;
    if (error == ENOSPC || error == EDQUOT) {
        remedy = "; free some space or choose another folder";
    } else if (error == ENOENT) {
        remedy = "; create the folder first";
    } else if (error == EACCES || error == EROFS) {
        remedy = "; choose a folder that you can write to";
    } else if (error == ENXIO) {
        remedy = "; nothing reads this pipe; start its reader first";
    }
    throw OutputFileError(path + ": " + what + ": " + std::generic_category().message(error) +
                          remedy);
}

int open_without_waiting(const std::string& path, int flags) {
    const int file = ::open(path.c_str(), flags | O_NONBLOCK | O_CLOEXEC, 0666);
    if (file >= 0) ::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) & ~O_NONBLOCK);
    return file;
}

OutputFile::OutputFile(std::string path) : buffer_(std::move(path)) {
    const std::string& name = buffer_.path();
    std::error_code ignored;
    if (std::filesystem::is_directory(name, ignored)) {
        throw_output_error(name, "cannot create", EISDIR);
    }
    if (std::filesystem::exists(name, ignored) &&
        !std::filesystem::is_regular_file(name, ignored)) {
        file_ = open_without_waiting(name, O_WRONLY);
        if (file_ < 0) throw_output_error(name, "cannot open", errno);
        return;
    }
    temporary_.emplace(name);
    file_ = temporary_->descriptor();
}

OutputFile::~OutputFile() {
    if (file_ >= 0 && !temporary_) ::close(file_);
}

void OutputFile::sync() {
    if (file_ < 0) return;
    buffer_.flush(file_);
    const int file = std::exchange(file_, -1);
    const int error = temporary_ ? sync_descriptor(file) : ::close(file) != 0 ? errno : 0;
    if (error != 0) throw_output_error(path(), "cannot write", error);
}

void OutputFile::publish() {
    sync();
    if (temporary_) temporary_->publish();
}

void sync_folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) throw_output_error(folder, "cannot open", errno);
    const int error = sync_descriptor(file);
    ::close(file);
    // Some file systems cannot sync folders; the files themselves are durable already.
    if (error != 0 && error != EINVAL && error != ENOTSUP && error != EBADF) {
        throw_output_error(folder, "cannot write", error);
    }
}

void make_directories(const std::string& path, std::string_view flag) {
    namespace fs = std::filesystem;
    std::error_code error;
    std::vector<std::string> made;
    fs::path there = path;
    for (; !there.empty() && !fs::exists(there, error); there = there.parent_path()) {
        if (there.has_filename()) made.push_back(there.string());  // "a/b/" ends without
    }
    if (!there.empty() && !fs::is_directory(there, error)) {
        const bool itself = there == fs::path(path);
        throw UsageError(std::string(flag) + " " + path + ": " +
                         (itself ? "" : there.string() + " ") +
                         "is a file, but must be a folder; choose another path");
    }
    fs::create_directories(path, error);
    if (error) {
        throw OutputFileError(std::string(flag) + " " + path +
                              ": cannot create the folder: " + error.message());
    }
    for (const std::string& folder : made) sync_folder_of(folder);
}

}  // namespace vocabpipe
