// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory_range.hpp"

namespace cuda_stand_in {

/// A stack and a place in the code that runs on it; switching costs nanoseconds. A fiber stays on
/// the OS thread that made it. The default one stands for the stack of that OS thread.
///
/// For ThreadSanitizer all fibers of an OS thread are that thread: it may create only some
/// thousands of fibers, and its question here is the order of streams; that of a kernel's threads
/// is AccessChecker's. Its stacks of call sites inside a kernel are therefore mixed up.
/// AddressSanitizer is told about every switch.
class Fiber {
public:
    Fiber() = default;
    /// Runs entry(argument) at the first switch to it; entry must never return.
    Fiber(void (*entry)(void*), void* argument);
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// Leaves this fiber, which must be the running one, and continues the other.
    void switch_to(Fiber& other);

    /// What a fiber calls first: it has just been switched to for the first time.
    void entered();

    [[nodiscard]] Memory stack() const {
        return {.low = reinterpret_cast<uintptr_t>(stack_low_), .bytes = stack_bytes_};
    }

private:
    void* mapping_ = nullptr;
    void* stack_pointer_ = nullptr;
    // For AddressSanitizer: where the stack is, and what it keeps of a fiber that sleeps.
    const void* stack_low_ = nullptr;
    size_t stack_bytes_ = 0;
    void* shadow_ = nullptr;
    Fiber* came_from_ = nullptr;
};

}  // namespace cuda_stand_in
