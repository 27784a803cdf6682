// SPDX-License-Identifier: Apache-2.0
#include "src/support/read_whole_file.hpp"

#include "src/support/descriptor.hpp"
#include "src/support/lfs_pointer.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace vocabpipe {

std::string read_whole_file(const std::string& path, std::string_view remedy, uint64_t most_bytes) {
    const auto refuse = [&](const std::string& what) {
        throw InputFileError(path + ": " + what + "; " + std::string(remedy));
    };
    const auto refuse_for = [&](int error) {
        refuse("cannot be read (" + std::generic_category().message(error) + ")");
    };
    // O_NONBLOCK: else opening a pipe without a writer would block.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) refuse_for(errno);
    struct stat state {};
    if (::fstat(file.get(), &state) != 0) refuse_for(errno);
    if (S_ISDIR(state.st_mode)) refuse("cannot be read because it is a folder");
    if (!S_ISREG(state.st_mode)) refuse("is not a regular file");
    const auto check_size = [&](uint64_t bytes) {
        if (bytes > most_bytes) {
            refuse("is larger than " + std::to_string(most_bytes >> 20) + " MiB");
        }
    };
    const auto size = static_cast<uint64_t>(state.st_size);
    check_size(size);
    if (is_lfs_pointer(file.get(), size)) throw InputFileError(lfs_pointer_message(path));
    std::string text;
    std::string block(size_t{1} << 16, '\0');
    while (true) {
        const ssize_t got = ::read(file.get(), block.data(), block.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) refuse_for(errno);
        if (got == 0) return text;
        text.append(block, 0, static_cast<size_t>(got));
        check_size(text.size());  // files of /proc say 0
    }
}

}  // namespace vocabpipe
