// SPDX-License-Identifier: Apache-2.0
#pragma once

// The vocabulary of device code, for a host compiler: the keywords vanish, a block's threads are
// fibers on the OS thread of the stream, and what stops a thread (barriers, shuffles) switches
// fibers. Shared memory belongs to the OS thread, which runs one block at a time.

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <bit>
#include <cstring>

#include "../vector_types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __align__(n) __attribute__((aligned(n)))

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

void __syncthreads();
void __syncwarp(unsigned int mask = 0xffffffffU);

namespace cuda_stand_in {

enum class Shuffle : unsigned char { from_lane, from_lower, from_higher, butterfly };

/// Hands value to the other 31 lanes of the warp and returns the one of the lane that (kind,
/// operand, width) name, as the CUDA programming guide defines it. It orders no accesses to memory.
[[nodiscard]] uint64_t shuffle(Shuffle kind, unsigned int mask, uint64_t value,
                               unsigned int operand, int width);

template <typename T>
[[nodiscard]] T shuffle(Shuffle kind, unsigned int mask, T value, unsigned int operand, int width) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves at most eight bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = shuffle(kind, mask, bits, operand, width);
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    return value;
}

template <typename T>
T atomic_add(T* address, T value) {
    return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}

}  // namespace cuda_stand_in

template <typename T>
T __shfl_sync(unsigned int mask, T value, int lane, int width = 32) {
    return cuda_stand_in::shuffle(cuda_stand_in::Shuffle::from_lane, mask, value,
                                  static_cast<unsigned int>(lane), width);
}
template <typename T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
    return cuda_stand_in::shuffle(cuda_stand_in::Shuffle::from_lower, mask, value, delta, width);
}
template <typename T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = 32) {
    return cuda_stand_in::shuffle(cuda_stand_in::Shuffle::from_higher, mask, value, delta, width);
}
template <typename T>
T __shfl_xor_sync(unsigned int mask, T value, int lane_mask, int width = 32) {
    return cuda_stand_in::shuffle(cuda_stand_in::Shuffle::butterfly, mask, value,
                                  static_cast<unsigned int>(lane_mask), width);
}

// Integers only: sums of floating-point atomics depend on the order.
inline int atomicAdd(int* address, int value) {
    return cuda_stand_in::atomic_add(address, value);
}
inline unsigned int atomicAdd(unsigned int* address, unsigned int value) {
    return cuda_stand_in::atomic_add(address, value);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
    return cuda_stand_in::atomic_add(address, value);
}

inline int min(int a, int b) {
    return b < a ? b : a;
}
inline unsigned int min(unsigned int a, unsigned int b) {
    return b < a ? b : a;
}
inline long min(long a, long b) {
    return b < a ? b : a;
}
inline unsigned long min(unsigned long a, unsigned long b) {
    return b < a ? b : a;
}
inline long long min(long long a, long long b) {
    return b < a ? b : a;
}
inline unsigned long long min(unsigned long long a, unsigned long long b) {
    return b < a ? b : a;
}
inline float min(float a, float b) {
    return fminf(a, b);
}
inline double min(double a, double b) {
    return fmin(a, b);
}
inline int max(int a, int b) {
    return a < b ? b : a;
}
inline unsigned int max(unsigned int a, unsigned int b) {
    return a < b ? b : a;
}
inline long max(long a, long b) {
    return a < b ? b : a;
}
inline unsigned long max(unsigned long a, unsigned long b) {
    return a < b ? b : a;
}
inline long long max(long long a, long long b) {
    return a < b ? b : a;
}
inline unsigned long long max(unsigned long long a, unsigned long long b) {
    return a < b ? b : a;
}
inline float max(float a, float b) {
    return fmaxf(a, b);
}
inline double max(double a, double b) {
    return fmax(a, b);
}

namespace cuda_stand_in {
inline float reciprocal_square_root(float x) {
    return 1.0F / sqrtf(x);
}
}  // namespace cuda_stand_in

// The C library declares functions of the first two names in <math.h>, newer ones of the third.
#define __expf(x) (::expf(x))
#define __logf(x) (::logf(x))
#define rsqrtf(x) (::cuda_stand_in::reciprocal_square_root(x))

inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __uint_as_float(unsigned int bits) {
    return std::bit_cast<float>(bits);
}
inline unsigned int __float_as_uint(float value) {
    return std::bit_cast<unsigned int>(value);
}
inline float __int_as_float(int bits) {
    return std::bit_cast<float>(bits);
}
inline int __float_as_int(float value) {
    return std::bit_cast<int>(value);
}
template <typename T>
T __ldg(const T* address) {
    return *address;
}
