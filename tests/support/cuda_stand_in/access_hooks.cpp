// SPDX-License-Identifier: Apache-2.0
// Kernels are compiled with -fsanitize=thread, so that they call these functions at every access to
// memory, and linked without ThreadSanitizer, whose names they are.
#include <cstddef>
#include <cstdint>

#include "block.hpp"
#include "sanitizers.hpp"

#if !CUDA_STAND_IN_TSAN

namespace {

using cuda_stand_in::BlockRunner;
using Access = cuda_stand_in::AccessChecker::Access;

inline void look_at(const volatile void* address, size_t bytes, Access access, const void* code) {
    if (BlockRunner* const runner = cuda_stand_in::watched_runner) {
        runner->look_at(reinterpret_cast<uintptr_t>(address), bytes, access, code);
    }
}

}  // namespace

#define CODE __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

void __tsan_read_range(const void* address, size_t bytes) {
    look_at(address, bytes, Access::read, CODE);
}
void __tsan_write_range(void* address, size_t bytes) {
    look_at(address, bytes, Access::write, CODE);
}

#define ACCESSES(bytes)                                      \
    void __tsan_read##bytes(const void* address) {           \
        look_at(address, bytes, Access::read, CODE);         \
    }                                                        \
    void __tsan_write##bytes(void* address) {                \
        look_at(address, bytes, Access::write, CODE);        \
    }                                                        \
    void __tsan_unaligned_read##bytes(const void* address) { \
        look_at(address, bytes, Access::read, CODE);         \
    }                                                        \
    void __tsan_unaligned_write##bytes(void* address) {      \
        look_at(address, bytes, Access::write, CODE);        \
    }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
#undef ACCESSES

void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

// The strongest order serves for every one that is asked for.
#define FETCH(bits, operation)                                                               \
    uint##bits##_t __tsan_atomic##bits##_fetch_##operation(volatile uint##bits##_t* address, \
                                                           uint##bits##_t value, int) {      \
        look_at(address, bits / 8, Access::atomic, CODE);                                    \
        return __atomic_fetch_##operation(address, value, __ATOMIC_SEQ_CST);                 \
    }
#define COMPARE(bits, strength, weak)                                                        \
    int __tsan_atomic##bits##_compare_exchange_##strength(volatile uint##bits##_t* address,  \
                                                          uint##bits##_t* expected,          \
                                                          uint##bits##_t value, int, int) {  \
        look_at(address, bits / 8, Access::atomic, CODE);                                    \
        return __atomic_compare_exchange_n(address, expected, value, weak, __ATOMIC_SEQ_CST, \
                                           __ATOMIC_SEQ_CST);                                \
    }
#define ATOMICS(bits)                                                                        \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* address, int) { \
        look_at(address, bits / 8, Access::atomic, CODE);                                    \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                   \
    }                                                                                        \
    void __tsan_atomic##bits##_store(volatile uint##bits##_t* address, uint##bits##_t value, \
                                     int) {                                                  \
        look_at(address, bits / 8, Access::atomic, CODE);                                    \
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                  \
    }                                                                                        \
    uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* address,          \
                                                  uint##bits##_t value, int) {               \
        look_at(address, bits / 8, Access::atomic, CODE);                                    \
        return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                        \
    }                                                                                        \
    FETCH(bits, add)                                                                         \
    FETCH(bits, sub)                                                                         \
    FETCH(bits, and)                                                                         \
    FETCH(bits, or)                                                                          \
    FETCH(bits, xor)                                                                         \
    COMPARE(bits, strong, false)                                                             \
    COMPARE(bits, weak, true)
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

}  // extern "C"

#endif
