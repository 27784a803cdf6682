// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/best_product.hpp"

#include <array>
#include <limits>
#include <string>

#include "benchmarks/device_timer.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::bench {

namespace {

constexpr int kMostAlgorithms = 24;
constexpr int kRunsEach = 5;

void check_blas(cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError(std::string(call) + ": cuBLASLt status " + std::to_string(status));
}

cudaDataType_t cuda_type(DType type) {
    return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace

// Row-major matrices are column-major transposes: c^T = op(b)^T op(a)^T.
BestProduct::Layout BestProduct::layout(ConstTensor tensor) {
    cublasLtMatrixLayout_t created = nullptr;
    check_blas(cublasLtMatrixLayoutCreate(&created, cuda_type(tensor.dtype),
                                          static_cast<uint64_t>(tensor.cols),
                                          static_cast<uint64_t>(tensor.rows), tensor.stride),
               "cublasLtMatrixLayoutCreate");
    return Layout(created);
}

BestProduct::BestProduct(cublasLtHandle_t blas, const Operands& operands,
                         std::span<std::byte> workspace, cudaStream_t stream)
    : blas_(blas),
      operands_(operands),
      workspace_(workspace),
      a_(layout(operands.b)),
      b_(layout(operands.a)),
      c_(layout(operands.c)) {
    cublasLtMatmulDesc_t description = nullptr;
    check_blas(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    description_.reset(description);
    const auto transpose = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
        const cublasOperation_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
        check_blas(cublasLtMatmulDescSetAttribute(description, which, &operation, sizeof operation),
                   "cublasLtMatmulDescSetAttribute");
    };
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, operands.transpose_b);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, operands.transpose_a);

    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> owner(preference);
    const uint64_t bytes = workspace.size();
    check_blas(cublasLtMatmulPreferenceSetAttribute(
                   preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
               "cublasLtMatmulPreferenceSetAttribute");
    std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> found{};
    int count = 0;
    check_blas(
        cublasLtMatmulAlgoGetHeuristic(blas, description, a_.get(), b_.get(), c_.get(), c_.get(),
                                       preference, kMostAlgorithms, found.data(), &count),
        "cublasLtMatmulAlgoGetHeuristic");

    DeviceTimer timer;
    float best_ms = std::numeric_limits<float>::infinity();
    for (int i = 0; i < count; ++i) {
        const auto& candidate = found[static_cast<size_t>(i)];
        if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
        if (launch(candidate.algo, stream) != CUBLAS_STATUS_SUCCESS) continue;  // warm-up
        timer.start(stream);
        for (int run = 0; run < kRunsEach; ++run) {
            check_blas(launch(candidate.algo, stream), "cublasLtMatmul");
        }
        timer.stop(stream);
        ++algorithms_;
        if (const float ms = timer.milliseconds(); ms < best_ms) {
            best_ms = ms;
            best_ = candidate.algo;
        }
    }
    if (algorithms_ == 0)
        throw DeviceError("cuBLASLt has no algorithm for a product to compare with");
}

cublasStatus_t BestProduct::launch(const cublasLtMatmulAlgo_t& algorithm,
                                   cudaStream_t stream) const {
    const float alpha = 1;
    const float beta = operands_.accumulate ? 1 : 0;
    return cublasLtMatmul(blas_, description_.get(), &alpha, operands_.b.data, a_.get(),
                          operands_.a.data, b_.get(), &beta, operands_.c.data, c_.get(),
                          operands_.c.data, c_.get(), &algorithm, workspace_.data(),
                          workspace_.size(), stream);
}

void BestProduct::run(cudaStream_t stream) const {
    check_blas(launch(best_, stream), "cublasLtMatmul");
}

}  // namespace vocabpipe::bench
