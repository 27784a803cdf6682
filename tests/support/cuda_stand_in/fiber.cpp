// SPDX-License-Identifier: Apache-2.0
#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdint>

#include "sanitizers.hpp"
#include "stream.hpp"

#if !defined(__x86_64__)
#error "the fibers of the CUDA stand-in know x86-64 only"
#endif

#if CUDA_STAND_IN_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old,
                                     size_t* size_old);
void __asan_unpoison_memory_region(const void volatile* address, size_t size);
}
#endif

extern "C" {
/// Pushes the registers that a callee preserves, stores the stack pointer, and takes up another.
void cuda_stand_in_switch(void** save, void* load);
/// First instructions of a fiber: calls r12(r13).
void cuda_stand_in_start();
}

asm(R"(
.pushsection .text
.globl cuda_stand_in_switch
.type cuda_stand_in_switch, @function
cuda_stand_in_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size cuda_stand_in_switch, .-cuda_stand_in_switch
.globl cuda_stand_in_start
.type cuda_stand_in_start, @function
cuda_stand_in_start:
    movq %r13, %rdi
    call *%r12
    ud2
.size cuda_stand_in_start, .-cuda_stand_in_start
.popsection
)");

namespace cuda_stand_in {

namespace {

constexpr size_t page = 4096;
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
    // From the top: a null return address, the start, then rbp, rbx, r12, r13, r14, r15. The
    // start finds the stack pointer at a multiple of 16, as a call expects.
    static thread_local size_t fibers = 0;
    const size_t shift =
        fibers++ % 48 * 64;  // stacks that all begin at a page's end share few cache lines
    auto* top =
        reinterpret_cast<uintptr_t*>(static_cast<char*>(mapping_) + page + stack_size - shift);
    *--top = 0;
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(&cuda_stand_in_start);
    *--top = 0;
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(entry);
    *--top = reinterpret_cast<uintptr_t>(argument);
    *--top = 0;
    *--top = 0;
    stack_pointer_ = top;
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
    cuda_stand_in_switch(&stack_pointer_, other.stack_pointer_);
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
