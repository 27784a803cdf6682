// SPDX-License-Identifier: Apache-2.0
#include "src/support/write_buffer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "src/support/output_file.hpp"

namespace vocabpipe {

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

WriteBuffer::WriteBuffer(std::string path, int64_t size) : path_(std::move(path)), size_(size) {
    buffer_.reserve(kBufferBytes);
}

void WriteBuffer::write(int file, std::span<const std::byte> bytes) {
    size_ += static_cast<int64_t>(bytes.size());
    while (!bytes.empty()) {
        const auto part = bytes.first(std::min(bytes.size(), kBufferBytes - buffer_.size()));
        buffer_.insert(buffer_.end(), part.begin(), part.end());
        bytes = bytes.subspan(part.size());
        if (buffer_.size() == kBufferBytes) flush(file);
    }
}

void WriteBuffer::flush(int file) {
    for (size_t done = 0; done < buffer_.size();) {
        const ssize_t written = ::write(file, buffer_.data() + done, buffer_.size() - done);
        if (written < 0 && errno != EINTR) throw_output_error(path_, "cannot write", errno);
        done += static_cast<size_t>(written > 0 ? written : 0);
    }
    buffer_.clear();
}

}  // namespace vocabpipe
