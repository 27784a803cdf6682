// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <cstdint>

/// The matrix multiplication behind cublasLtMatmul, apart from its interface.
namespace cuda_stand_in {

struct MatrixLayout {
    cudaDataType_t type = CUDA_R_32F;
    int32_t order = CUBLASLT_ORDER_COL;
    uint64_t rows = 0;
    uint64_t columns = 0;
    int64_t leading = 0;
    int32_t batch = 1;
    int64_t batch_stride = 0;  ///< elements

    bool operator==(const MatrixLayout&) const = default;
    /// Elements from the first to behind the last of all matrices of the batch.
    [[nodiscard]] uint64_t span() const;
    [[nodiscard]] uint64_t at(uint64_t row, uint64_t column) const {
        const auto stride = static_cast<uint64_t>(leading);
        return order == CUBLASLT_ORDER_COL ? row + column * stride : row * stride + column;
    }
};

struct MatmulDescription {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t scale = CUDA_R_32F;
    int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
    int32_t transpose_a = CUBLAS_OP_N;
    int32_t transpose_b = CUBLAS_OP_N;
    int32_t transpose_c = CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;
    int64_t bias_batch_stride = 0;
    int32_t bias_type = -1;
    void* aux = nullptr;
    int64_t aux_leading = 0;
    int64_t aux_batch_stride = 0;
    int32_t aux_type = -1;
    int32_t multiprocessors = 0;

    [[nodiscard]] bool has(uint32_t bits) const { return (epilogue & bits) == bits; }
    [[nodiscard]] bool adds_bias() const { return has(CUBLASLT_EPILOGUE_BIAS); }
    [[nodiscard]] bool writes_bias_gradient() const {
        return epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD || epilogue == CUBLASLT_EPILOGUE_BGRADA ||
               epilogue == CUBLASLT_EPILOGUE_BGRADB;
    }
    [[nodiscard]] bool uses_bias_pointer() const { return adds_bias() || writes_bias_gradient(); }
    [[nodiscard]] bool uses_aux() const { return has(128); }
};

struct Matmul {
    MatmulDescription op;
    MatrixLayout a, b, c, d;

    [[nodiscard]] uint64_t m() const { return d.rows; }
    [[nodiscard]] uint64_t n() const { return d.columns; }
    [[nodiscard]] uint64_t k() const { return op.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
};

/// The order of the sums over k.
struct Summation {
    uint16_t chunk = 1;   ///< neighbouring terms that are added up before they join the rest
    uint16_t splits = 1;  ///< parts of k that are summed apart
    /// What becomes of the parts: added in fp32 (COMPUTE_TYPE), rounded to the type of D and then
    /// added (OUTPUT_TYPE), or added in D, whose type rounds every time, in an order that nobody
    /// knows beforehand (INPLACE).
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
};

struct MatmulOperands {
    const void* a;
    const void* b;
    const void* c;
    void* d;
    float alpha;
    float beta;
};

[[nodiscard]] uint64_t element_bytes(int32_t type);

/// What the library documents to refuse, and what it does not document to accept.
[[nodiscard]] cublasStatus_t check(const Matmul& matmul);

/// D = epilogue(alpha op(A) op(B) + beta C).
void multiply(const Matmul& matmul, const MatmulOperands& operands, const Summation& summation);

}  // namespace cuda_stand_in
