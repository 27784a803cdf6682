// SPDX-License-Identifier: Apache-2.0
// How a product is described to cuBLASLt, and which of its algorithms runs. Private to
// kernels/cuda.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/cuda/product_shape.hpp"

namespace vocabpipe::kernels::cuda {

/// Descriptors of one shape and the algorithms that the library's heuristic lists for it: a chosen
/// one first, if any, then the heuristic's in its order, by expected speed.
class ProductPlan {
public:
    /// Length of the list that is requested: enough if some are refused, and for timing.
    static constexpr int kCandidates = 8;

    /// Throws DeviceError if cuBLASLt fails for another reason than having no algorithm. `chosen`
    /// precedes all that the heuristic lists; may be null.
    ProductPlan(cublasLtHandle_t blas, const ProductShape& shape,
                const cublasLtMatmulAlgo_t* chosen = nullptr);

    /// The plan for another number of rows of c or of terms of the sum, with the algorithms of
    /// `whole` that cuBLASLt accepts for it: the heuristic is not asked again.
    ProductPlan(cublasLtHandle_t blas, const ProductPlan& whole, int64_t m, int64_t k);

    [[nodiscard]] const std::vector<cublasLtMatmulAlgo_t>& candidates() const {
        return candidates_;
    }

    /// Enqueues the product with the first candidate that the library runs, and drops those before
    /// it: the heuristic may list algorithms that cublasLtMatmul refuses. Returns false, with
    /// nothing done, when none is left. Throws DeviceError if cuBLASLt fails or rejects the call
    /// itself.
    [[nodiscard]] bool run(cublasLtHandle_t blas, const Product& product,
                           const Engine::Queue& queue);

    /// Enqueues the product with one candidate, for timing; returns cublasLtMatmul's status.
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
    void describe();
    void list_candidates(cublasLtHandle_t blas, const ProductShape& shape);

    ProductShape shape_;
    Description description_;
    Layout a_, b_, addend_, c_;
    std::vector<cublasLtMatmulAlgo_t> candidates_;
};

}  // namespace vocabpipe::kernels::cuda
