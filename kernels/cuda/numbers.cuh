// SPDX-License-Identifier: Apache-2.0
// Element types of device tensors, and accesses of up to 16 bytes at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vocabpipe/error.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

__device__ __forceinline__ float to_float(float value) {
    return value;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
    return __bfloat162float(value);
}
/// Rounds to nearest, ties to even.
template <typename T>
__device__ __forceinline__ T from_float(float value) {
    if constexpr (sizeof(T) == 2) {
        return __float2bfloat16(value);
    } else {
        return value;
    }
}

/// Neighbours that one thread reads and writes together: `at` is aligned to their total size, at
/// most 16 bytes. kCount: 1, 4 or 8.
template <int kCount>
struct Vector {
    float values[kCount];

    __device__ __forceinline__ float& operator[](int i) { return values[i]; }
    __device__ __forceinline__ float operator[](int i) const { return values[i]; }

    __device__ __forceinline__ void load(const float* at) {
        if constexpr (kCount == 1) {
            values[0] = *at;
        } else {
            for (int i = 0; i < kCount; i += 4) {
                const float4 four = *reinterpret_cast<const float4*>(at + i);
                values[i] = four.x;
                values[i + 1] = four.y;
                values[i + 2] = four.z;
                values[i + 3] = four.w;
            }
        }
    }
    __device__ __forceinline__ void load(const __nv_bfloat16* at) {
        if constexpr (kCount == 1) {
            values[0] = __bfloat162float(*at);
        } else if constexpr (kCount == 4) {
            const uint2 bits = *reinterpret_cast<const uint2*>(at);
            unpack(0, bits.x);
            unpack(2, bits.y);
        } else {
            const uint4 bits = *reinterpret_cast<const uint4*>(at);
            unpack(0, bits.x);
            unpack(2, bits.y);
            unpack(4, bits.z);
            unpack(6, bits.w);
        }
    }
    __device__ __forceinline__ void store(float* at) const {
        if constexpr (kCount == 1) {
            *at = values[0];
        } else {
            for (int i = 0; i < kCount; i += 4) {
                float4 four;
                four.x = values[i];
                four.y = values[i + 1];
                four.z = values[i + 2];
                four.w = values[i + 3];
                *reinterpret_cast<float4*>(at + i) = four;
            }
        }
    }
    __device__ __forceinline__ void store(__nv_bfloat16* at) const {
        if constexpr (kCount == 1) {
            *at = __float2bfloat16(values[0]);
        } else if constexpr (kCount == 4) {
            uint2 bits;
            bits.x = packed(0);
            bits.y = packed(2);
            *reinterpret_cast<uint2*>(at) = bits;
        } else {
            uint4 bits;
            bits.x = packed(0);
            bits.y = packed(2);
            bits.z = packed(4);
            bits.w = packed(6);
            *reinterpret_cast<uint4*>(at) = bits;
        }
    }

private:
    __device__ __forceinline__ void unpack(int i, uint32_t bits) {
        __nv_bfloat162 pair;
        memcpy(&pair, &bits, sizeof(pair));
        const float2 two = __bfloat1622float2(pair);
        values[i] = two.x;
        values[i + 1] = two.y;
    }
    [[nodiscard]] __device__ __forceinline__ uint32_t packed(int i) const {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], values[i + 1]);
        uint32_t bits;
        memcpy(&bits, &pair, sizeof(bits));
        return bits;
    }
};

template <typename T, int kCount>
__device__ __forceinline__ Vector<kCount> loaded(const T* at) {
    Vector<kCount> values;
    values.load(at);
    return values;
}

/// Calls function.template operator()<T>() with the type of a device tensor's elements.
template <typename Function>
void with_element_type(DType type, Function&& function) {
    switch (type) {
        case DType::fp32:
            return function.template operator()<float>();
        case DType::bf16:
            return function.template operator()<__nv_bfloat16>();
        case DType::fp64:
            break;
    }
    throw UsageError("CUDA kernels take fp32 and bf16 tensors; fp64 is for the reference kernels");
}

/// The most neighbours per thread for tensors of these types where no bit depends on which thread
/// has which elements: 16 bytes' worth. A warp's access to 8 floats each would be two accesses of
/// half sectors that lie 32 bytes apart.
template <typename... T>
[[nodiscard]] constexpr int widest() {
    return (std::is_same_v<T, float> && ...) ? 4 : 8;
}

/// Calls function.template operator()<kCount>() with kMost where rows of all the tensors can be
/// read 8 elements at a time, otherwise with 1. Empty tensors do not count.
template <int kMost = 8, typename Function, typename... Tensors>
void with_vectors(Function&& function, const Tensors&... tensors) {
    const auto fits = [](ConstTensor t) {
        if (!t) return true;
        const auto address = reinterpret_cast<uintptr_t>(t.data);
        return address % 16 == 0 && t.cols % 8 == 0 && (t.rows == 1 || t.stride % 8 == 0);
    };
    if ((fits(tensors) && ...)) {
        function.template operator()<kMost>();
    } else {
        function.template operator()<1>();
    }
}

}  // namespace vocabpipe::kernels::cuda
