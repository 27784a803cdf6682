// SPDX-License-Identifier: Apache-2.0
#include "tests/support/file_calls.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace vocabpipe::testing {

namespace {

namespace fs = std::filesystem;

std::atomic<FileCalls*>& watching() {
    static std::atomic<FileCalls*> calls{nullptr};
    return calls;
}

/// "a/b.partial-17-0" as "a/b.partial".
std::string without_numbers(const std::string& name) {
    constexpr std::string_view kPartial = ".partial-";
    const size_t at = name.find(kPartial);
    return at == std::string::npos ? name : name.substr(0, at + kPartial.size() - 1);
}

std::set<std::string> without_numbers(const std::set<std::string>& names) {
    std::set<std::string> result;
    for (const std::string& name : names) result.insert(without_numbers(name));
    return result;
}

bool is_within(const std::string& name, const std::string& folder) {
    return name == folder || name.starts_with(folder + "/");
}

}  // namespace

FileCalls::FileCalls(const std::string& folder) : folder_(fs::canonical(folder).string()) {
    watching() = this;
}

FileCalls::~FileCalls() {
    watching() = nullptr;
}

std::vector<std::string> FileCalls::list() const {
    const Lock lock = this->lock();
    return calls_;
}

std::vector<std::string> FileCalls::list_after_writing() const {
    std::vector<std::string> calls = list();
    std::erase_if(calls, [](const std::string& call) {
        return call.starts_with("create ") || call.starts_with("write ");
    });
    return calls;
}

size_t FileCalls::count(std::string_view call) const {
    const std::vector<std::string> calls = list();
    return static_cast<size_t>(std::ranges::count(calls, call));
}

std::set<std::string> FileCalls::torn() const {
    const Lock lock = this->lock();
    return without_numbers(torn_);
}

std::set<std::string> FileCalls::unsynced() const {
    const Lock lock = this->lock();
    return without_numbers(unsynced_);
}

void FileCalls::interrupt(size_t most_bytes) {
    const Lock lock = this->lock();
    most_bytes_ = most_bytes;
}

void FileCalls::fail_syncs(int error) {
    const Lock lock = this->lock();
    sync_error_ = error;
}

std::optional<std::string> FileCalls::name_of(const std::string& path) const {
    const fs::path whole = fs::absolute(path).lexically_normal();
    const fs::path at = whole.has_filename() ? whole : whole.parent_path();  // "a/b/"
    std::error_code error;
    const fs::path real = fs::canonical(at.parent_path(), error) / at.filename();
    if (error) return std::nullopt;
    if (real == folder_) return ".";
    const std::string name = real.string();
    if (!name.starts_with(folder_ + "/")) return std::nullopt;
    return name.substr(folder_.size() + 1);
}

std::optional<std::string> FileCalls::name_of(int file) const {
    std::error_code error;
    const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(file), error);
    if (error || !path.is_absolute()) return std::nullopt;
    return name_of(path.string());
}

void FileCalls::created(const std::string& name, bool folder) {
    note("create " + without_numbers(name));
    if (!folder) unsynced_.insert(name);
    parent_changed(name);
}

void FileCalls::written(const std::string& name) {
    note("write " + without_numbers(name));
    unsynced_.insert(name);
}

void FileCalls::synced(const std::string& name) {
    calls_.push_back("sync " + without_numbers(name));
    unsynced_.erase(name);
}

void FileCalls::renamed(const std::string& from, const std::string& to) {
    note("rename " + without_numbers(from) + " " + without_numbers(to));
    std::set<std::string> moved;
    std::erase_if(unsynced_, [&](const std::string& name) {
        if (is_within(name, from)) moved.insert(to + name.substr(from.size()));
        return is_within(name, from) || is_within(name, to);
    });
    torn_.insert(moved.begin(), moved.end());
    unsynced_.insert(moved.begin(), moved.end());
    parent_changed(from);
    parent_changed(to);
}

void FileCalls::removed(const std::string& name) {
    note("remove " + without_numbers(name));
    unsynced_.erase(name);
    parent_changed(name);
}

std::optional<size_t> FileCalls::allowed(size_t bytes) {
    if (most_bytes_ == 0) return bytes;
    interrupted_ = !interrupted_;
    if (interrupted_) return std::nullopt;
    return std::min(bytes, most_bytes_);
}

void FileCalls::note(const std::string& call) {
    if (calls_.empty() || calls_.back() != call) calls_.push_back(call);
}

void FileCalls::parent_changed(const std::string& name) {
    const size_t slash = name.rfind('/');
    unsynced_.insert(slash == std::string::npos ? "." : name.substr(0, slash));
}

namespace {

template <typename Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

int fail_with(int error) {
    errno = error;
    return -1;
}

bool exists(const char* path) {
    struct stat status {};
    return ::lstat(path, &status) == 0;
}

/// Calls, and where that was no failure tells what has been done, before anyone else calls.
template <typename Call, typename Tell>
auto told(const Call& call, const Tell& tell) {
    FileCalls* const calls = watching();
    if (calls == nullptr) return call();
    const FileCalls::Lock lock = calls->lock();
    const auto result = call();
    const int error = errno;
    if (result >= 0) tell(*calls);
    errno = error;
    return result;
}

/// The same of a call that moves bytes of a file.
template <typename Call>
ssize_t moved(int file, size_t bytes, bool writes, const Call& call) {
    FileCalls* const calls = watching();
    if (calls == nullptr) return call(bytes);
    const FileCalls::Lock lock = calls->lock();
    const auto name = calls->name_of(file);
    if (!name) return call(bytes);
    const std::optional<size_t> part = calls->allowed(bytes);
    if (!part) return fail_with(EINTR);
    const ssize_t result = call(*part);
    if (writes) calls->written(*name);
    return result;
}

int synced(const char* function, int file) {
    const auto call = [&] { return next<int (*)(int)>(function)(file); };
    FileCalls* const calls = watching();
    if (calls != nullptr) {
        const FileCalls::Lock lock = calls->lock();
        if (calls->sync_error() != 0) return fail_with(calls->sync_error());
    }
    return told(call, [&](FileCalls& seen) {
        if (const auto name = seen.name_of(file)) seen.synced(*name);
    });
}

int removed(const char* function, const char* path) {
    return told([&] { return next<int (*)(const char*)>(function)(path); },
                [&](FileCalls& seen) {
                    if (const auto name = seen.name_of(std::string(path))) seen.removed(*name);
                });
}

void tell_rename(FileCalls& seen, const char* from, const char* to) {
    const auto before = seen.name_of(std::string(from));
    const auto after = seen.name_of(std::string(to));
    if (before && after) seen.renamed(*before, *after);
}

void tell_written(FileCalls& seen, int file) {
    if (const auto name = seen.name_of(file)) seen.written(*name);
}

}  // namespace

}  // namespace vocabpipe::testing

namespace calls = vocabpipe::testing;

extern "C" {

int open(const char* path, int flags, ...) {
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0) {
        std::va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    bool is_new = false;
    return calls::told(
        [&] {
            is_new = !calls::exists(path);
            return calls::next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
        },
        [&](calls::FileCalls& seen) {
            const auto name = seen.name_of(std::string(path));
            if (!name) return;
            if (is_new) seen.created(*name, false);
            if (!is_new && (flags & O_TRUNC) != 0) seen.written(*name);
        });
}

int mkdir(const char* path, mode_t mode) noexcept {
    return calls::told(
        [&] { return calls::next<int (*)(const char*, mode_t)>("mkdir")(path, mode); },
        [&](calls::FileCalls& seen) {
            const auto name = seen.name_of(std::string(path));
            if (name) seen.created(*name, true);
        });
}

ssize_t write(int file, const void* from, size_t bytes) {
    return calls::moved(file, bytes, true, [&](size_t part) {
        return calls::next<ssize_t (*)(int, const void*, size_t)>("write")(file, from, part);
    });
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
    return calls::moved(file, bytes, true, [&](size_t part) {
        return calls::next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite")(file, from, part,
                                                                                   at);
    });
}

ssize_t read(int file, void* to, size_t bytes) {
    return calls::moved(file, bytes, false, [&](size_t part) {
        return calls::next<ssize_t (*)(int, void*, size_t)>("read")(file, to, part);
    });
}

ssize_t pread(int file, void* to, size_t bytes, off_t at) {
    return calls::moved(file, bytes, false, [&](size_t part) {
        return calls::next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(file, to, part, at);
    });
}

int ftruncate(int file, off_t bytes) noexcept {
    return calls::told([&] { return calls::next<int (*)(int, off_t)>("ftruncate")(file, bytes); },
                       [&](calls::FileCalls& seen) { calls::tell_written(seen, file); });
}

int fsync(int file) {
    return calls::synced("fsync", file);
}

int fdatasync(int file) {
    return calls::synced("fdatasync", file);
}

int rename(const char* from, const char* to) noexcept {
    return calls::told(
        [&] { return calls::next<int (*)(const char*, const char*)>("rename")(from, to); },
        [&](calls::FileCalls& seen) { calls::tell_rename(seen, from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
    return calls::told(
        [&] {
            return calls::next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(
                from_folder, from, to_folder, to, flags);
        },
        [&](calls::FileCalls& seen) { calls::tell_rename(seen, from, to); });
}

int unlink(const char* path) noexcept {
    return calls::removed("unlink", path);
}

int rmdir(const char* path) noexcept {
    return calls::removed("rmdir", path);
}

}  // extern "C"
