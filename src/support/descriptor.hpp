// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <utility>

namespace vocabpipe {

/// An open file, or none; closes it. Move-only.
class Descriptor {
public:
    Descriptor() = default;
    /// Takes what open() returned; below 0: none.
    explicit Descriptor(int file) : file_(file) {}
    ~Descriptor() { close(); }
    Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        if (this != &other) {
            close();
            file_ = std::exchange(other.file_, -1);
        }
        return *this;
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    /// Below 0: none.
    [[nodiscard]] int get() const { return file_; }
    void close() noexcept {
        if (file_ >= 0) ::close(std::exchange(file_, -1));
    }

private:
    int file_ = -1;
};

}  // namespace vocabpipe
