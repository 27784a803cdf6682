// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace vocabpipe::shared_memory {

/// A file of /dev/shm in this process's memory. Its creator must remove() the name once all have
/// opened it; the memory is freed with the last of them, however that one ends.
class Mapping {
public:
    /// Makes zeros under a new name and allocates all of them, so that writing cannot fail later.
    /// Throws CommunicationError with bytes and remedy if /dev/shm is full or missing.
    [[nodiscard]] static std::unique_ptr<Mapping> create(size_t bytes);
    /// Opens what another rank has created. Throws CommunicationError, also for other sizes.
    [[nodiscard]] static std::unique_ptr<Mapping> open(const std::string& name, size_t bytes);
    ~Mapping();  ///< also removes the name if this rank created it
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::byte* data() const { return memory_; }
    void remove() noexcept;

private:
    Mapping(std::string name, size_t bytes) : name_(std::move(name)), bytes_(bytes) {}
    void map(int file);

    std::string name_;
    size_t bytes_;
    bool named_ = false;  ///< the name exists, and this rank must remove it
    std::byte* memory_ = nullptr;
};

}  // namespace vocabpipe::shared_memory
