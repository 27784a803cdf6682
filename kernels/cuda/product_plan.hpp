// SPDX-License-Identifier: Apache-2.0
// Private to kernels/cuda: what cuBLASLt is asked for a product, and which of its algorithms runs.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/cuda/product_shape.hpp"

namespace vocabpipe::kernels::cuda {

/// Descriptors of one shape and the algorithms that the library's heuristic lists for it, the one
/// that it holds for the fastest first, unless another was chosen.
class ProductPlan {
public:
    /// Of the list that is asked for: enough to go on when some are refused, and to time.
    static constexpr int kCandidates = 8;

    /// Throws DeviceError if cuBLASLt fails otherwise than by having no algorithm.
    /// `chosen` goes before all that the heuristic lists; null: none does.
    ProductPlan(cublasLtHandle_t blas, const ProductShape& shape,
                const cublasLtMatmulAlgo_t* chosen = nullptr);

    /// For another number of rows of c or of terms of the sum, with the algorithms of `whole`, as
    /// far as cuBLASLt takes them: the heuristic is not asked again.
    ProductPlan(cublasLtHandle_t blas, const ProductPlan& whole, int64_t m, int64_t k);

    [[nodiscard]] const std::vector<cublasLtMatmulAlgo_t>& candidates() const {
        return candidates_;
    }

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
    void describe();
    void list_candidates(cublasLtHandle_t blas, const ProductShape& shape);

    ProductShape shape_;
    Description description_;
    Layout a_, b_, addend_, c_;
    std::vector<cublasLtMatmulAlgo_t> candidates_;
};

}  // namespace vocabpipe::kernels::cuda
