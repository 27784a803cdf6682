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

}  // extern "C"
