// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/coroutine.hpp"

#include "vocabpipe/error.hpp"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

// Sanitizers know the stack of a thread only; they must be told when another one is taken.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VOCABPIPE_ADDRESS_SANITIZER
#endif
#if __has_feature(thread_sanitizer)
#define VOCABPIPE_THREAD_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define VOCABPIPE_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__)
#define VOCABPIPE_THREAD_SANITIZER
#endif
#ifdef VOCABPIPE_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef VOCABPIPE_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace vocabpipe {

namespace {

/// As much as a thread usually has. Pages that are never touched take no memory.
constexpr size_t kStackBytes = size_t{8} << 20;
constexpr int kHalf = 32;  // bits of half a pointer

/// One side of a switch between two stacks, as the sanitizers see it.
class Side {
public:
#ifdef VOCABPIPE_THREAD_SANITIZER
    void is_thread() {
        fiber_ = __tsan_get_current_fiber();
    }
    void is_new() {
        fiber_ = __tsan_create_fiber(0);
    }
    void is_gone() {
        __tsan_destroy_fiber(fiber_);
    }
#else
    void is_thread() {}
    void is_new() {}
    void is_gone() {}
#endif

    /// Before the registers of `to` are taken, whose stack this side knows. `ends`: this side never
    /// runs again.
    void leave_for([[maybe_unused]] Side& to, [[maybe_unused]] bool ends) {
#ifdef VOCABPIPE_ADDRESS_SANITIZER
        __sanitizer_start_switch_fiber(ends ? nullptr : &fake_, to.bottom_, to.bytes_);
#endif
#ifdef VOCABPIPE_THREAD_SANITIZER
        __tsan_switch_to_fiber(to.fiber_, 0);
#endif
    }
    /// The first thing on this side after the switch.
    void arrive_from([[maybe_unused]] Side& from) {
#ifdef VOCABPIPE_ADDRESS_SANITIZER
        __sanitizer_finish_switch_fiber(fake_, &from.bottom_, &from.bytes_);
        fake_ = nullptr;
#endif
    }
    void has([[maybe_unused]] const void* bottom, [[maybe_unused]] size_t bytes) {
#ifdef VOCABPIPE_ADDRESS_SANITIZER
        bottom_ = bottom;
        bytes_ = bytes;
#endif
    }

private:
#ifdef VOCABPIPE_ADDRESS_SANITIZER
    void* fake_ = nullptr;
    const void* bottom_ = nullptr;
    size_t bytes_ = 0;
#endif
#ifdef VOCABPIPE_THREAD_SANITIZER
    void* fiber_ = nullptr;
#endif
};

}  // namespace

struct Coroutine::Stack {
    Stack()
        : guard(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
          memory(
              static_cast<std::byte*>(mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
        if (memory == MAP_FAILED) {
            throw OutOfMemoryError("a stack of " + std::to_string(kStackBytes) +
                                   " bytes for the second pass of a pair cannot be allocated");
        }
        mprotect(memory, guard, PROT_NONE);  // an overflow ends the process
    }
    ~Stack() { munmap(memory, guard + kStackBytes); }
    Stack(const Stack&) = delete;
    Stack& operator=(const Stack&) = delete;

    size_t guard;
    std::byte* memory;
    ucontext_t caller{}, work{};
    Side caller_side, work_side;
};

Coroutine::Coroutine() = default;
Coroutine::~Coroutine() {
    cancel();
}

void Coroutine::start(std::function<void()> work) {
    if (!stack_) stack_ = std::make_unique<Stack>();
    Stack& stack = *stack_;
    work_ = std::move(work);
    getcontext(&stack.work);
    stack.work.uc_stack.ss_sp = stack.memory + stack.guard;
    stack.work.uc_stack.ss_size = kStackBytes;
    stack.work.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&stack.work, reinterpret_cast<void (*)()>(&Coroutine::run), 2,
                static_cast<unsigned>(self >> kHalf), static_cast<unsigned>(self));
    stack.work_side = {};
    stack.work_side.has(stack.memory + stack.guard, kStackBytes);
    stack.work_side.is_new();
    enter();
}

/// What the new stack begins with; the halves are `this`, because makecontext() passes integers.
void Coroutine::run(unsigned high, unsigned low) {
    auto& self = *reinterpret_cast<Coroutine*>(static_cast<uintptr_t>(high) << kHalf | low);
    Stack& stack = *self.stack_;
    stack.work_side.arrive_from(stack.caller_side);
    try {
        self.work_();
    } catch (const Cancelled&) {  // NOLINT(bugprone-empty-catch)
    } catch (...) {
        self.error_ = std::current_exception();
    }
    self.suspended_ = false;
    stack.work_side.leave_for(stack.caller_side, true);
    setcontext(&stack.caller);
}

void Coroutine::resume() {
    enter();
}

/// Hands control to the work and takes it back.
void Coroutine::enter() {
    Stack& stack = *stack_;
    stack.caller_side.is_thread();
    suspended_ = false;
    inside_ = true;
    stack.caller_side.leave_for(stack.work_side, false);
    swapcontext(&stack.caller, &stack.work);
    stack.caller_side.arrive_from(stack.work_side);
    inside_ = false;
    if (suspended_) return;
    stack.work_side.is_gone();
    work_ = {};
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Coroutine::suspend() {
    Stack& stack = *stack_;
    suspended_ = true;
    stack.work_side.leave_for(stack.caller_side, false);
    swapcontext(&stack.work, &stack.caller);
    stack.work_side.arrive_from(stack.caller_side);
    if (cancelled_) throw Cancelled();
}

void Coroutine::cancel() noexcept {
    if (!suspended_) return;
    cancelled_ = true;
    try {
        enter();
    } catch (...) {  // NOLINT(bugprone-empty-catch): another error propagates already
    }
    cancelled_ = false;
}

}  // namespace vocabpipe
