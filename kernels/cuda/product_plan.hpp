// SPDX-License-Identifier: Apache-2.0
// Private to kernels/cuda: what cuBLASLt is asked for a product, and which of its algorithms runs.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/gemm.hpp"

namespace vocabpipe::kernels::cuda {

/// All that cuBLASLt's choice of an algorithm may depend on, in row-major terms. Equal shapes get
/// equal algorithms, on every rank and in every run on the same GPU and library, and so equal bits.
struct ProductShape {
    int64_t m = 0, n = 0, k = 0;
    int64_t a_stride = 0, b_stride = 0, c_stride = 0, addend_stride = 0, aux_stride = 0;
    int64_t batch = 1, a_step = 0, b_step = 0, c_step = 0;
    int64_t workspace_bytes = 0;  ///< lanes differ
    int multiprocessors = 0;      ///< to be spread over; 0: all
    /// Bytes that the pointers are multiples of, at most 16.
    int a_alignment = 0, b_alignment = 0, c_alignment = 0, addend_alignment = 0;
    int bias_alignment = 0;
    DType ab_type = DType::fp32, c_type = DType::fp32, bias_type = DType::fp32;
    bool transpose_a = false, transpose_b = false, has_addend = false, has_bias = false;
    Epilogue epilogue = Epilogue::none;

    bool operator==(const ProductShape&) const = default;

    [[nodiscard]] static ProductShape of(const Product& product, const Engine& engine);
};

struct ProductShapeHash {
    size_t operator()(const ProductShape& shape) const;
};

/// Descriptors of one shape and the algorithms that the library's heuristic lists for it, the one
/// that it holds for the fastest first.
class ProductPlan {
public:
    /// Of the list that is asked for: enough to go on when some are refused, and to time.
    static constexpr int kCandidates = 8;

    /// Throws DeviceError if cuBLASLt fails otherwise than by having no algorithm.
    ProductPlan(cublasLtHandle_t blas, const ProductShape& shape);

    [[nodiscard]] size_t candidates() const { return candidates_.size(); }

    /// Enqueues the product with the first candidate that the library runs, and forgets those
    /// before it: the heuristic may list what cublasLtMatmul refuses. False, and nothing done, when
    /// none is left. Throws DeviceError if cuBLASLt fails, or finds fault with the call itself.
    [[nodiscard]] bool run(cublasLtHandle_t blas, const Product& product,
                           const Engine::Queue& queue);

    /// With one candidate, to time it: what cublasLtMatmul answered.
    [[nodiscard]] cublasStatus_t enqueue(cublasLtHandle_t blas, const Product& product,
                                         const Engine::Queue& queue, size_t candidate);

private:
    struct Destroy {
        void operator()(cublasLtMatmulDesc_t desc) const { (void)cublasLtMatmulDescDestroy(desc); }
        void operator()(cublasLtMatrixLayout_t layout) const {
            (void)cublasLtMatrixLayoutDestroy(layout);
        }
    };
    using Description = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy>;
    using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroy>;

    [[nodiscard]] static Layout layout(DType type, int64_t rows, int64_t cols, int64_t stride,
                                       int64_t batch, int64_t step);
    void list_candidates(cublasLtHandle_t blas, const ProductShape& shape);

    ProductShape shape_;
    Description description_;
    Layout a_, b_, addend_, c_;
    std::vector<cublasLtMatmulAlgo_t> candidates_;
};

}  // namespace vocabpipe::kernels::cuda
