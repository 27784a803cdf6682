// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// Instructions that kernels of the host are written for; each set includes those before it.
enum class InstructionSet {
    plain,        ///< those of every CPU of the architecture
    avx2,         ///< with FMA
    avx512,       ///< AVX-512F, BW, DQ and VL
    avx512_bf16,  ///< with dot products of bf16
};

/// The largest set that this CPU has.
[[nodiscard]] InstructionSet cpu_instruction_set();
/// The set that kernels use: that of the CPU, or the smaller one that the environment variable
/// VOCABPIPE_MAX_INSTRUCTION_SET names. Throws UsageError if it names none.
[[nodiscard]] InstructionSet used_instruction_set();

/// Whether our own AVX-512 kernels for a type run with a set (for bf16, by its dot products).
[[nodiscard]] constexpr bool has_avx512(InstructionSet set, DType type) {
    return set >= (type == DType::bf16 ? InstructionSet::avx512_bf16 : InstructionSet::avx512);
}

}  // namespace vocabpipe::kernels::host
