// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/instruction_set.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::host {

namespace {

constexpr const char* kVariable = "VOCABPIPE_MAX_INSTRUCTION_SET";

InstructionSet set_named(std::string_view name) {
    constexpr std::string_view kNames[] = {"plain", "avx2", "avx512", "avx512_bf16"};
    const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
    if (found == std::end(kNames)) {
        throw UsageError(std::string(kVariable) + " is '" + std::string(name) +
                         "'; it may be plain, avx2, avx512 or avx512_bf16");
    }
    return static_cast<InstructionSet>(found - std::begin(kNames));
}

}  // namespace

InstructionSet cpu_instruction_set() {
#ifdef __x86_64__
    const auto all = [](auto... has) { return ((has != 0) && ...); };
    if (!all(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"))) {
        return InstructionSet::plain;
    }
    if (!all(__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512bw"),
             __builtin_cpu_supports("avx512dq"), __builtin_cpu_supports("avx512vl"))) {
        return InstructionSet::avx2;
    }
    return __builtin_cpu_supports("avx512bf16") != 0 ? InstructionSet::avx512_bf16
                                                     : InstructionSet::avx512;
#else
    return InstructionSet::plain;
#endif
}

InstructionSet used_instruction_set() {
    const char* const limit = std::getenv(kVariable);
    const InstructionSet of_cpu = cpu_instruction_set();
    return limit == nullptr ? of_cpu : std::min(of_cpu, set_named(limit));
}

}  // namespace vocabpipe::kernels::host
