// SPDX-License-Identifier: Apache-2.0
// A word of 32 bits holds two terms of bf16 or one of fp32, so both types are laid out alike. For
// files that are compiled for other machines than this one, each of which gets its own.
#pragma once

#include <cstdint>

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {
namespace {

using Word = uint32_t;
constexpr int64_t kLanes = 16;  ///< words of a vector

template <DType type>
constexpr int64_t kWordTerms = type == DType::bf16 ? 2 : 1;

template <DType type>
int64_t words_of(int64_t terms) {
    return (terms + kWordTerms<type> - 1) / kWordTerms<type>;
}

}  // namespace
}  // namespace vocabpipe::kernels::host
