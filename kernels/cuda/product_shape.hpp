// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/gemm.hpp"

namespace vocabpipe::kernels::cuda {

/// All that cuBLASLt's choice of an algorithm may depend on, in row-major terms. Equal shapes get
/// equal algorithms, on every rank and in every run on the same GPU and library, and so equal bits.
struct ProductShape {
    int64_t m = 0, n = 0, k = 0;
    int64_t a_stride = 0, b_stride = 0, c_stride = 0, addend_stride = 0, aux_stride = 0;
    int64_t batch = 1, a_step = 0, b_step = 0, c_step = 0;
    int64_t workspace_bytes = 0;  ///< differs between lanes
    int multiprocessors = 0;      ///< to use; 0: all
    /// Bytes that the pointers are multiples of, at most 16.
    int a_alignment = 0, b_alignment = 0, c_alignment = 0, addend_alignment = 0;
    int bias_alignment = 0;
    DType ab_type = DType::fp32, c_type = DType::fp32, bias_type = DType::fp32;
    bool transpose_a = false, transpose_b = false, has_addend = false, has_bias = false;
    Epilogue epilogue = Epilogue::none;

    bool operator==(const ProductShape&) const = default;

    [[nodiscard]] static ProductShape of(const Product& product, const Engine& engine);
    /// The members as numbers, in one line; parse() reads it back, and throws InputFileError.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] static ProductShape parse(std::string_view text);
};

struct ProductShapeHash {
    size_t operator()(const ProductShape& shape) const;
};

/// "product of (64, 32) and (32, 16) bf16 into fp32, ...", for messages.
[[nodiscard]] std::string describe(const ProductShape& shape);

/// The greatest alignment that is stated for pointers: vector loads and the tensor memory
/// accelerator need no more. More would split the cache, and give equal products at different
/// addresses different algorithms and so different bits.
inline constexpr int kLargestAlignment = 16;

}  // namespace vocabpipe::kernels::cuda
