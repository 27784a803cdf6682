// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_stand_in/nccl_elements.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cuda_stand_in::nccl {

namespace {

/// bf16 as the upper half of an fp32, rounded to nearest even.
struct Bf16 {
    uint16_t bits;
    explicit operator float() const {
        const uint32_t wide = static_cast<uint32_t>(bits) << 16;
        float value = 0;
        std::memcpy(&value, &wide, sizeof value);
        return value;
    }
    static Bf16 round(float value) {
        uint32_t wide = 0;
        std::memcpy(&wide, &value, sizeof wide);
        if (std::isnan(value)) return {static_cast<uint16_t>(wide >> 16 | 0x40)};
        return {static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
    }
};

template <typename Number>
Number combine_softmax(Number a, Number b, ncclRedOp_t op) {
    switch (op) {
        case ncclProd:
            return static_cast<Number>(a * b);
        case ncclMax:
            return std::max(a, b);
        case ncclMin:
            return std::min(a, b);
        default:
            return static_cast<Number>(a + b);
    }
}

template <typename T>
void each(void* into, size_t count, const auto& change) {
    auto* bytes = static_cast<std::byte*>(into);
    for (size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
        value = change(i, value);
        std::memcpy(bytes + i * sizeof(T), &value, sizeof(T));
    }
}

template <typename T>
T element(const void* from, size_t i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
    return value;
}

/// Calls `f` with a value of the type that an element is stored as.
void with_type(ncclDataType_t type, const auto& f) {
    switch (type) {
        case ncclInt8:
            return f(int8_t{});
        case ncclUint8:
            return f(uint8_t{});
        case ncclInt32:
            return f(int32_t{});
        case ncclUint32:
            return f(uint32_t{});
        case ncclInt64:
            return f(int64_t{});
        case ncclUint64:
            return f(uint64_t{});
        case ncclFloat32:
            return f(float{});
        case ncclFloat64:
            return f(double{});
        case ncclBfloat16:
            return f(Bf16{});
        default:
            return;
    }
}

}  // namespace

size_t size_of(ncclDataType_t type) {
    constexpr std::array<size_t, ncclNumTypes> kSizes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type < 0 || type >= ncclNumTypes ? 0 : kSizes[type];
}

std::string name_of(ncclDataType_t type) {
    constexpr std::array<const char*, ncclNumTypes> kNames{
        "int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
        "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    return type < 0 || type >= ncclNumTypes ? "no type" : kNames[type];
}

std::string name_of(ncclRedOp_t op) {
    constexpr std::array<const char*, ncclNumOps> kNames{"sum", "prod", "max", "min", "avg"};
    return op < 0 || op >= ncclNumOps ? "no operation" : kNames[op];
}

bool can_reduce(ncclDataType_t type) {
    bool known = false;
    with_type(type, [&](auto) { known = true; });
    return known;
}

void accumulate(void* into, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t op) {
    with_type(type, [&]<typename T>(T) {
        each<T>(into, count, [&](size_t i, T value) {
            const T other = element<T>(from, i);
            if constexpr (std::is_same_v<T, Bf16>) {
                return Bf16::round(
                    combine_softmax(static_cast<float>(value), static_cast<float>(other), op));
            } else {
                return combine_softmax(value, other, op);
            }
        });
    });
}

void divide(void* values, size_t count, ncclDataType_t type, int by) {
    with_type(type, [&]<typename T>(T) {
        each<T>(values, count, [&](size_t, T value) {
            if constexpr (std::is_same_v<T, Bf16>) {
                return Bf16::round(static_cast<float>(value) / static_cast<float>(by));
            } else {
                return static_cast<T>(value / static_cast<T>(by));
            }
        });
    });
}

}  // namespace cuda_stand_in::nccl
