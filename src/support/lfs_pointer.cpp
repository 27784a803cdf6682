// SPDX-License-Identifier: Apache-2.0
#include "src/support/lfs_pointer.hpp"

#include <unistd.h>

#include <array>
#include <string_view>

namespace vocabpipe {

namespace {

constexpr std::string_view kFirstLine = "version https://git-lfs.github.com/spec/";
constexpr uint64_t kMostBytes = 1024;  // largest size of a pointer

}  // namespace

bool is_lfs_pointer(int file, uint64_t bytes) {
    if (bytes < kFirstLine.size() || bytes > kMostBytes) return false;
    std::array<char, kFirstLine.size()> head;
    const ssize_t got = ::pread(file, head.data(), head.size(), 0);
    return got == static_cast<ssize_t>(head.size()) &&
           std::string_view(head.data(), head.size()) == kFirstLine;
}

std::string lfs_pointer_message(const std::string& path) {
    return path + ": is a Git LFS pointer, not the file itself; run git lfs pull in its repository";
}

}  // namespace vocabpipe
