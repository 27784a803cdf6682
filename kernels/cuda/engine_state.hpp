// SPDX-License-Identifier: Apache-2.0
// Private to kernels/cuda: the only header of this folder that includes cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <type_traits>
#include <unordered_map>

#include "kernels/cuda/attention_cudnn.hpp"
#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/gemm.hpp"

namespace vocabpipe::kernels::cuda {

/// All that cuBLASLt's choice of an algorithm depends on, in row-major terms.
struct ProductShape {
    int64_t m = 0, n = 0, k = 0;
    int64_t a_stride = 0, b_stride = 0, c_stride = 0, addend_stride = 0, aux_stride = 0;
    int64_t batch = 1, a_step = 0, b_step = 0, c_step = 0;
    int64_t workspace_bytes = 0;  ///< lanes differ
    /// Bytes that the pointers are multiples of, at most 16.
    int a_alignment = 0, b_alignment = 0, c_alignment = 0, addend_alignment = 0;
    int bias_alignment = 0;
    DType ab_type = DType::fp32, c_type = DType::fp32, bias_type = DType::fp32;
    bool transpose_a = false, transpose_b = false, has_addend = false, has_bias = false;
    Epilogue epilogue = Epilogue::none;

    bool operator==(const ProductShape&) const = default;
};

struct ProductShapeHash {
    size_t operator()(const ProductShape& shape) const;
};

/// Descriptors and algorithm of one shape.
class ProductPlan {
public:
    /// Throws DeviceError if cuBLASLt fails otherwise than by having no algorithm.
    ProductPlan(cublasLtHandle_t blas, const ProductShape& shape, const Product& product);

    [[nodiscard]] bool exists() const { return exists_; }
    void run(cublasLtHandle_t blas, const Product& product, const Engine::Queue& queue);

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
    void point_at(const Product& product);
    void choose(cublasLtHandle_t blas, const ProductShape& shape);

    Description description_;
    Layout a_, b_, addend_, c_;
    cublasLtMatmulAlgo_t algorithm_{};
    bool exists_ = false;
};

struct Engine::State {
    State();
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    cublasLtHandle_t blas = nullptr;
    std::unordered_map<ProductShape, ProductPlan, ProductShapeHash> products;
    /// Made at first use. Shared, because only its maker knows how to destroy it.
    std::shared_ptr<CudnnAttention> cudnn;
};

}  // namespace vocabpipe::kernels::cuda
