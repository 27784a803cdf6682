// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/text_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "src/support/descriptor.hpp"
#include "src/support/lfs_pointer.hpp"
#include "src/train/data/identify_file.hpp"
#include "src/train/text/decompress.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

/// Read in blocks and not mapped, as the input may be on a slow network
/// disk and may grow.
class TextFile {
public:
    explicit TextFile(const std::string& path)
        : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        if (file_.get() < 0) {
            fail(errno);
        }
    }

    [[nodiscard]] int64_t bytes() const {
        struct stat status {};
        if (::fstat(file_.get(), &status) != 0) {
            fail(errno);
        }
        if (!S_ISREG(status.st_mode)) {
            throw InputFileError(path_ + ": is not a regular file" +
                                 (S_ISDIR(status.st_mode) ? " but a folder" : ""));
        }
        if (is_lfs_pointer(file_.get(), static_cast<uint64_t>(status.st_size))) {
            throw InputFileError(lfs_pointer_message(path_));
        }
        return status.st_size;
    }

    /// Fills as much of `block` as the file has; returns the bytes read, 0 at its end.
    size_t read(std::span<char> block) const {
        size_t filled = 0;
        while (filled < block.size()) {
            const ssize_t got = ::read(file_.get(), block.data() + filled, block.size() - filled);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got < 0) {
                fail(errno);
            }
            if (got == 0) {
                break;
            }
            filled += static_cast<size_t>(got);
        }
        return filled;
    }

    /// The first bytes.
    [[nodiscard]] std::string head() const {
        std::string head(64, '\0');
        head.resize(read(head));
        return head;
    }

private:
    [[noreturn]] void fail(int error) const {
        throw InputFileError(path_ + ": cannot read: " + std::generic_category().message(error));
    }

    const std::string& path_;
    Descriptor file_;
};

bool is_parquet(std::string_view head) {
    return head.starts_with("PAR1");
}

/// Refuses what is compressed in other ways, and tables.
void check_content(const std::string& path, std::string_view head) {
    const FileIdentity found = identify_bytes(std::as_bytes(std::span(head)));
    if (found.binary) {
        throw InputFileError(path + ": is not text but " + found.description + "; " + found.remedy);
    }
}

}  // namespace

int64_t text_file_bytes(const std::string& path) {
    const TextFile file(path);
    const int64_t bytes = file.bytes();
    const std::string head = file.head();
    if (find_decompressor(path, head) == nullptr && !is_parquet(head)) check_content(path, head);
    return bytes;
}

bool is_parquet_file(const std::string& path) {
    const TextFile file(path);
    (void)file.bytes();
    return is_parquet(file.head());
}

void read_text_file(const std::string& path, const std::function<void(std::string_view)>& take,
                    const std::function<void(int64_t)>& progress) {
    const TextFile file(path);
    (void)file.bytes();
    std::string block(kReadBytes, '\0');
    std::unique_ptr<Decompressor> decompressor;
    for (bool first = true;; first = false) {
        const auto bytes = std::string_view(block).substr(0, file.read(block));
        if (first) {
            decompressor = find_decompressor(path, bytes);
            if (decompressor == nullptr) check_content(path, bytes);
        }
        if (bytes.empty()) break;
        if (progress) progress(static_cast<int64_t>(bytes.size()));
        if (decompressor != nullptr) {
            decompressor->feed(bytes, take);
        } else {
            take(bytes);
        }
    }
    if (decompressor != nullptr) decompressor->end();
}

}  // namespace vocabpipe
