// SPDX-License-Identifier: Apache-2.0
// Compiled with the same options as the kernels that it speaks for.
#include "kernels/host/avx512.hpp"

namespace vocabpipe::kernels::host {

#ifdef __AVX512BF16__
bool has_avx512(DType type) {
    return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
           __builtin_cpu_supports("avx512vl") != 0 &&
           (type == DType::fp32 || __builtin_cpu_supports("avx512bf16") != 0);
}
#else
bool has_avx512(DType /*type*/) {
    return false;
}
#endif

}  // namespace vocabpipe::kernels::host
