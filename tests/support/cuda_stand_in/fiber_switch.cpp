// SPDX-License-Identifier: Apache-2.0
#include "fiber_switch.hpp"

#include <cstdint>

#if defined(__x86_64__)

// swapcontext() asks the kernel about signals at every switch; these are a dozen instructions.
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

void* prepare_stack(char* low, size_t bytes, void (*entry)(void*), void* argument) {
    // From the top: a null return address, the start, then rbp, rbx, r12, r13, r14, r15. The
    // start finds the stack pointer at a multiple of 16, as a call expects.
    auto* top = reinterpret_cast<uintptr_t*>(low + bytes);
    *--top = 0;
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(&cuda_stand_in_start);
    *--top = 0;
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(entry);
    *--top = reinterpret_cast<uintptr_t>(argument);
    *--top = 0;
    *--top = 0;
    return top;
}

void switch_stack(void** save, void* load) {
    cuda_stand_in_switch(save, load);
}

}  // namespace cuda_stand_in

#else

#include <ucontext.h>

#include <new>

namespace cuda_stand_in {

namespace {

/// makecontext() hands over ints: two make a pointer.
void start(unsigned int entry_high, unsigned int entry_low, unsigned int high, unsigned int low) {
    const auto join = [](unsigned int upper, unsigned int lower) {
        return static_cast<uintptr_t>(uint64_t{upper} << 32 | lower);
    };
    reinterpret_cast<void (*)(void*)>(join(entry_high, entry_low))(
        reinterpret_cast<void*>(join(high, low)));
}

}  // namespace

void* prepare_stack(char* low, size_t bytes, void (*entry)(void*), void* argument) {
    const size_t kept = (sizeof(ucontext_t) + 63) / 64 * 64;
    auto* const context = new (low + bytes - kept) ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = low;
    context->uc_stack.ss_size = bytes - kept;
    context->uc_link = nullptr;
    const auto function = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(entry));
    const auto pointer = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(argument));
    const auto begin = reinterpret_cast<void (*)()>(&start);
    makecontext(context, begin, 4, static_cast<unsigned int>(function >> 32),
                static_cast<unsigned int>(function), static_cast<unsigned int>(pointer >> 32),
                static_cast<unsigned int>(pointer));
    return context;
}

void switch_stack(void** save, void* load) {
    ucontext_t here;  // lives as long as this stack sleeps
    *save = &here;
    swapcontext(&here, static_cast<ucontext_t*>(load));
}

}  // namespace cuda_stand_in

#endif
