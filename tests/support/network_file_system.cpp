// SPDX-License-Identifier: Apache-2.0
// A library to be preloaded: calls answer as a network file system's do on a bad day. Which of
// them, VOCABPIPE_FILE_SYSTEM says.
#include <dlfcn.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

bool is(std::string_view what) {
    const char* const chosen = std::getenv("VOCABPIPE_FILE_SYSTEM");
    return chosen != nullptr && chosen == what;
}

template <typename Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

int fail(int error) {
    errno = error;
    return -1;
}

}  // namespace

extern "C" {

int flock(int file, int operation) noexcept {
    if (is("no-locks")) return fail(ENOLCK);
    return next<int (*)(int, int)>("flock")(file, operation);
}

int fsync(int file) {
    static std::atomic<int> calls{0};
    if (is("interrupted-fsync") && calls++ % 2 == 0) return fail(EINTR);
    return next<int (*)(int)>("fsync")(file);
}

// The server did it; its answer was lost, and the repeated request found nothing.
int rename(const char* from, const char* to) noexcept {
    const int result = next<int (*)(const char*, const char*)>("rename")(from, to);
    if (result == 0 && is("rename-answers-ENOENT")) return fail(ENOENT);
    if (result == 0 && is("rename-answers-EIO")) return fail(EIO);
    return result;
}

// What is read of metrics files.
ssize_t pread(int file, void* to, size_t bytes, off_t at) {
    if (is("read-answers-EIO")) {
        char link[64];
        std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        char path[4096];
        const ssize_t size = ::readlink(link, path, sizeof path);
        const std::string_view name(path, size > 0 ? static_cast<size_t>(size) : 0);
        if (name.ends_with("/metrics")) return fail(EIO);
    }
    return next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(file, to, bytes, at);
}

}  // extern "C"
