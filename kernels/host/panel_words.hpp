// SPDX-License-Identifier: Apache-2.0
// A word of 32 bits holds two terms of bf16 or one of fp32, so both types are laid out alike. For
// files that are compiled for instructions of their own, each of which gets its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {
namespace {

using Word = uint32_t;
constexpr int64_t kLanes = 16;  ///< words per vector of AVX-512

template <DType type>
constexpr int64_t kWordTerms = type == DType::bf16 ? 2 : 1;

constexpr int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
constexpr int64_t larger(int64_t a, int64_t b) {
    return a < b ? b : a;
}
constexpr int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

template <DType type>
int64_t words_of(int64_t terms) {
    return (terms + kWordTerms<type> - 1) / kWordTerms<type>;
}

/// A matrix stored by rows, `stride` bytes apart.
struct Stored {
    const std::byte* data = nullptr;
    int64_t stride = 0;
};

template <typename T>
T load(const std::byte* at) {
    T value;
    __builtin_memcpy(&value, at, sizeof(value));
    return value;
}

}  // namespace
}  // namespace vocabpipe::kernels::host
