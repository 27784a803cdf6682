// SPDX-License-Identifier: Apache-2.0
#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "fiber_switch.hpp"
#include "sanitizers.hpp"
#include "stream.hpp"

#if CUDA_STAND_IN_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old,
                                     size_t* size_old);
void __asan_unpoison_memory_region(const void volatile* address, size_t size);
}
#endif

namespace cuda_stand_in {

namespace {

const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
#if CUDA_STAND_IN_ASAN || CUDA_STAND_IN_TSAN || !defined(__OPTIMIZE__)
constexpr size_t stack_size = 256 * 1024;
#else
constexpr size_t stack_size = 64 * 1024;  // local arrays of a kernel are a few KiB
#endif

}  // namespace

Fiber::Fiber(void (*entry)(void*), void* argument) {
    mapping_ = mmap(nullptr, page + stack_size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapping_ == MAP_FAILED || mprotect(mapping_, page, PROT_NONE) != 0) {
        die("no memory for the stack of a fiber");
    }
    stack_low_ = static_cast<char*>(mapping_) + page;
    stack_bytes_ = stack_size;
    // Stacks that all begin at the end of a page would share few lines of the cache.
    static thread_local size_t fibers = 0;
    const size_t shift = fibers++ % 48 * 64;
    stack_pointer_ =
        prepare_stack(static_cast<char*>(mapping_) + page, stack_size - shift, entry, argument);
}

Fiber::~Fiber() {
    if (mapping_ != nullptr) {
#if CUDA_STAND_IN_ASAN
        __asan_unpoison_memory_region(stack_low_, stack_bytes_);  // its frames never returned
#endif
        munmap(mapping_, page + stack_size);
    }
}

void Fiber::switch_to(Fiber& other) {
    other.came_from_ = this;
#if CUDA_STAND_IN_ASAN
    __sanitizer_start_switch_fiber(&shadow_, other.stack_low_, other.stack_bytes_);
#endif
    switch_stack(&stack_pointer_, other.stack_pointer_);
    entered();
}

void Fiber::entered() {
#if CUDA_STAND_IN_ASAN
    const void* low = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(shadow_, &low, &bytes);
    if (came_from_->stack_low_ == nullptr) {  // the OS thread's own stack, seen for the first time
        came_from_->stack_low_ = low;
        came_from_->stack_bytes_ = bytes;
    }
#endif
}

}  // namespace cuda_stand_in
