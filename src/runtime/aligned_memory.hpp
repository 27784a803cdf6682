// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/error.hpp"

#include <sys/mman.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace vocabpipe {

/// Page-aligned, zeroed host memory taken straight from the system, so that freeing gives it back
/// and the planned figure is the resident one. Every page is touched at once: a step never faults.
class AlignedMemory {
public:
    AlignedMemory() = default;
    /// `what` names the use in the OutOfMemoryError.
    AlignedMemory(uint64_t bytes, const std::string& what) : bytes_(bytes) {
        if (bytes == 0) return;
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory == MAP_FAILED) {
            throw OutOfMemoryError(what + ": " + std::to_string(bytes) +
                                   " bytes cannot be allocated; use a smaller model or microbatch, "
                                   "more ranks, or another vocab mode");
        }
        memory_ = {static_cast<std::byte*>(memory), Unmap{bytes}};
    }
    [[nodiscard]] std::byte* data() const { return memory_.get(); }
    [[nodiscard]] uint64_t size() const { return bytes_; }

private:
    struct Unmap {
        uint64_t bytes;
        void operator()(std::byte* memory) const { munmap(memory, bytes); }
    };
    std::unique_ptr<std::byte, Unmap> memory_;
    uint64_t bytes_ = 0;
};

}  // namespace vocabpipe
