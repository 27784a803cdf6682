// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <vector>

#include "matmul.hpp"

/// What the heuristic of the stand-in knows: algorithms that differ in the order of their sums.
namespace cuda_stand_in {

/// What a cublasLtMatmulAlgo_t of the stand-in holds.
struct Algorithm {
    uint64_t problem = 0;  ///< problem_of() what it was made for
    uint64_t workspace = 0;
    uint32_t alignment[4] = {1, 1, 1, 1};  ///< of A, B, C, D: bytes
    Summation summation;
    uint32_t delay_us = 0;
    bool refused = false;  ///< by cublasLtMatmul, although the heuristic lists it
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignment[4] = {256, 256, 256, 256};  ///< of A, B, C, D: bytes
};

/// Everything that an algorithm must fit, in one number: all but how many columns D has, and with
/// it B (rows of a row-major product): an algorithm does for any number of them.
[[nodiscard]] uint64_t problem_of(const Matmul& matmul);

/// At most `most`, the one that the heuristic holds for the fastest first. Their order varies with
/// the problem, the alignments, those of the pointers of bias and aux among them, the target of
/// multiprocessors and the workspace, and is the same in every process.
[[nodiscard]] std::vector<Algorithm> algorithms_for(const Matmul& matmul,
                                                    const Preference& preference, size_t most);

}  // namespace cuda_stand_in
