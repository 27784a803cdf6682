// SPDX-License-Identifier: Apache-2.0
#include "matmul_algorithms.hpp"

#include <algorithm>
#include <array>
#include <atomic>

#include "control.hpp"

namespace cuda_stand_in {

namespace {

std::atomic<int> refused_algorithms{0};
std::atomic<int> slowed_algorithms{0};
std::atomic<uint32_t> delay_us{0};

/// FNV-1a.
class Hash {
public:
    void mix(uint64_t value) { bits_ = (bits_ ^ value) * 1099511628211U; }
    [[nodiscard]] uint64_t bits() const { return bits_ ^ bits_ >> 29; }

private:
    uint64_t bits_ = 14695981039346656037U;
};

/// Two of three split the sum, as libraries like to where a result has few tiles.
constexpr std::array summations{
    Summation{.chunk = 8, .splits = 3, .scheme = CUBLASLT_REDUCTION_SCHEME_INPLACE},
    Summation{.chunk = 8},
    Summation{.chunk = 4, .splits = 2, .scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    Summation{.chunk = 8, .splits = 4, .scheme = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE},
    Summation{.chunk = 16},
    Summation{.chunk = 8, .splits = 3, .scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    Summation{.chunk = 4, .splits = 2, .scheme = CUBLASLT_REDUCTION_SCHEME_INPLACE},
    Summation{.chunk = 32},
    Summation{.chunk = 16, .splits = 2, .scheme = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE},
    Summation{.chunk = 4},
    Summation{.chunk = 16, .splits = 5, .scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
    Summation{.chunk = 2},
};
/// Some workspace whenever it is allowed, so that a program which passes none is found out.
constexpr uint64_t workspace_bytes = 4096;

uint64_t alignment_of(const void* pointer) {
    const auto bits = reinterpret_cast<uintptr_t>(pointer) | 256U;
    return bits & -bits;
}

bool fits(const Summation& summation, const Matmul& matmul, const Preference& preference) {
    if (summation.splits == 1) return true;
    return (preference.reductions & summation.scheme) != 0 && matmul.k() >= summation.splits &&
           preference.workspace >= workspace_bytes;
}

}  // namespace

void refuse_algorithms(int algorithms) {
    refused_algorithms.store(algorithms, std::memory_order_relaxed);
}

void slow_algorithms(int algorithms, std::chrono::microseconds longer) {
    slowed_algorithms.store(algorithms, std::memory_order_relaxed);
    delay_us.store(static_cast<uint32_t>(longer.count()), std::memory_order_relaxed);
}

namespace {

/// Everything that an algorithm may be chosen for.
uint64_t fingerprint(const Matmul& matmul) {
    Hash hash;
    const MatmulDescription& op = matmul.op;
    for (const auto value : {static_cast<int64_t>(op.compute), int64_t{op.transpose_a},
                             int64_t{op.transpose_b}, int64_t{op.epilogue}, op.aux_leading,
                             int64_t{op.multiprocessors}, int64_t{op.pointer_mode}}) {
        hash.mix(static_cast<uint64_t>(value));
    }
    for (const MatrixLayout* layout : {&matmul.a, &matmul.b, &matmul.c, &matmul.d}) {
        for (const auto value :
             {static_cast<int64_t>(layout->type), int64_t{layout->order},
              static_cast<int64_t>(layout->rows), static_cast<int64_t>(layout->columns),
              layout->leading, int64_t{layout->batch}, layout->batch_stride}) {
            hash.mix(static_cast<uint64_t>(value));
        }
    }
    return hash.bits();
}

}  // namespace

uint64_t problem_of(const Matmul& matmul) {
    Matmul any = matmul;
    any.c.columns = any.d.columns = 0;
    (any.op.transpose_b == CUBLAS_OP_N ? any.b.columns : any.b.rows) = 0;
    return fingerprint(any);
}

std::vector<Algorithm> algorithms_for(const Matmul& matmul, const Preference& preference,
                                      size_t most) {
    Hash hash;
    hash.mix(fingerprint(matmul));
    hash.mix(preference.workspace);
    for (const uint32_t alignment : preference.alignment) hash.mix(alignment);
    if (matmul.op.uses_bias_pointer()) hash.mix(alignment_of(matmul.op.bias));
    if (matmul.op.uses_aux()) hash.mix(alignment_of(matmul.op.aux));

    const auto refused =
        std::max<size_t>(hash.bits() / summations.size() % 3 == 0 ? 1 : 0,
                         static_cast<size_t>(refused_algorithms.load(std::memory_order_relaxed)));
    const auto slow = static_cast<size_t>(slowed_algorithms.load(std::memory_order_relaxed));
    std::vector<Algorithm> algorithms;
    for (size_t i = 0; i < summations.size() && algorithms.size() < most; ++i) {
        const Summation& summation = summations[(hash.bits() + i) % summations.size()];
        if (!fits(summation, matmul, preference)) continue;
        Algorithm algorithm{.problem = problem_of(matmul),
                            .workspace = std::min(preference.workspace, workspace_bytes),
                            .summation = summation,
                            .refused = algorithms.size() < refused};
        if (algorithms.size() < slow) algorithm.delay_us = delay_us.load(std::memory_order_relaxed);
        std::copy_n(preference.alignment, 4, algorithm.alignment);
        algorithms.push_back(algorithm);
    }
    return algorithms;
}

}  // namespace cuda_stand_in
