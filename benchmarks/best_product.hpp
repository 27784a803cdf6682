// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <span>

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::bench {

/// c = op(a) op(b), or += , with the fastest of the algorithms that cuBLASLt's heuristic lists,
/// each timed on the tensors themselves: what the library can do, for the ratio of what we do to
/// it. Row-major, dense or with strides; the tensors must outlive it.
class BestProduct {
public:
    struct Operands {
        ConstTensor a;
        bool transpose_a = false;
        ConstTensor b;
        bool transpose_b = false;
        Tensor c;
        bool accumulate = false;
    };

    /// Runs every algorithm a few times on `stream` and waits for it.
    BestProduct(cublasLtHandle_t blas, const Operands& operands, std::span<std::byte> workspace,
                cudaStream_t stream);
    void run(cudaStream_t stream) const;
    [[nodiscard]] int algorithms() const { return algorithms_; }  ///< that were timed

private:
    template <typename Handle, auto destroy>
    struct Destroy {
        void operator()(Handle handle) const { (void)destroy(handle); }
    };
    template <typename Handle, auto destroy>
    using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
    using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

    [[nodiscard]] cublasStatus_t launch(const cublasLtMatmulAlgo_t& algorithm,
                                        cudaStream_t stream) const;
    [[nodiscard]] static Layout layout(ConstTensor tensor);

    cublasLtHandle_t blas_;
    Operands operands_;
    std::span<std::byte> workspace_;
    Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> description_;
    Layout a_, b_, c_;
    cublasLtMatmulAlgo_t best_{};
    int algorithms_ = 0;
};

}  // namespace vocabpipe::bench
