// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/product_plan.hpp"

#include <array>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

cudaDataType_t cuda_type(DType type) {
    return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

void check_blas(cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError(std::string(call) + ": " + cublasLtGetStatusName(status));
}
void check_blas(cublasStatus_t status, const char* call, const ProductShape& shape) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError(std::string(call) + ": " + cublasLtGetStatusName(status) + " for a " +
                      describe(shape));
}

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_blas(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    check_blas(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)),
               "cublasLtMatrixLayoutSetAttribute");
}
template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
               "cublasLtMatmulPreferenceSetAttribute");
}

cublasLtEpilogue_t epilogue_of(const ProductShape& s) {
    switch (s.epilogue) {
        case Epilogue::gelu:
            return s.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        case Epilogue::gelu_gradient:
            return CUBLASLT_EPILOGUE_DGELU;
        case Epilogue::none:
            break;
    }
    return s.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

// A row-major matrix is the transpose of the column-major one in the same memory, and
// c^T = op(b)^T op(a)^T: cuBLASLt's A is b, its B is a, its D (n, m) is c.
ProductPlan::ProductPlan(cublasLtHandle_t blas, const ProductShape& shape,
                         const cublasLtMatmulAlgo_t* chosen)
    : shape_(shape) {
    describe();
    if (chosen != nullptr) candidates_.push_back(*chosen);
    list_candidates(blas, shape);
}

/// An algorithm is a tile, a split of the sum and the like; cublasLtMatmulAlgoCheck says whether it
/// works for other sizes.
ProductPlan::ProductPlan(cublasLtHandle_t blas, const ProductPlan& whole, int64_t m, int64_t k)
    : shape_(whole.shape_), candidates_(whole.candidates_) {
    shape_.m = m;
    shape_.k = k;
    describe();
    std::erase_if(candidates_, [&](const cublasLtMatmulAlgo_t& algorithm) {
        cublasLtMatmulHeuristicResult_t found{};
        const cublasStatus_t status =
            cublasLtMatmulAlgoCheck(blas, description_.get(), b_.get(), a_.get(), addend_.get(),
                                    c_.get(), &algorithm, &found);
        return status != CUBLAS_STATUS_SUCCESS || found.state != CUBLAS_STATUS_SUCCESS ||
               found.workspaceSize > static_cast<size_t>(shape_.workspace_bytes);
    });
}

void ProductPlan::describe() {
    const ProductShape& s = shape_;
    cublasLtMatmulDesc_t desc = nullptr;
    check_blas(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    description_.reset(desc);
    const cublasOperation_t op_b = s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_a = s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, op_b);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, op_a);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s));
    if (s.multiprocessors > 0) {
        set(desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{s.multiprocessors});
    }
    if (s.has_bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(s.bias_type));
    if (s.epilogue != Epilogue::none) {
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s.aux_stride);
    }
    // The heuristic takes alignments from these pointers without reading them: with the tensors'
    // own, equal shapes could get different algorithms.
    const auto somewhere = [](int alignment) {
        return reinterpret_cast<void*>(static_cast<uintptr_t>(alignment));
    };
    if (s.has_bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere(s.bias_alignment));
    if (s.epilogue != Epilogue::none) {
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, somewhere(kLargestAlignment));
    }
    a_ = layout(s.ab_type, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.a_stride,
                s.batch, s.a_step);
    b_ = layout(s.ab_type, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.b_stride,
                s.batch, s.b_step);
    c_ = layout(s.c_type, s.m, s.n, s.c_stride, s.batch, s.c_step);
    addend_ = layout(s.c_type, s.m, s.n, s.addend_stride, s.batch, s.c_step);
}

ProductPlan::Layout ProductPlan::layout(DType type, int64_t rows, int64_t cols, int64_t stride,
                                        int64_t batch, int64_t step) {
    cublasLtMatrixLayout_t result = nullptr;
    check_blas(cublasLtMatrixLayoutCreate(&result, cuda_type(type), static_cast<uint64_t>(cols),
                                          static_cast<uint64_t>(rows), stride),
               "cublasLtMatrixLayoutCreate");
    Layout owner(result);
    if (batch > 1) {
        set(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
        set(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
    }
    return owner;
}

void ProductPlan::list_candidates(cublasLtHandle_t blas, const ProductShape& s) {
    struct DestroyPreference {
        void operator()(cublasLtMatmulPreference_t p) const {
            (void)cublasLtMatmulPreferenceDestroy(p);
        }
    };
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyPreference>
        owner(preference);
    // Parts of a sum are added in fp32 and in order, not in the type of c or in c itself.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t attribute, int bytes) {
        set(preference, attribute, static_cast<uint32_t>(bytes));
    };
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<uint64_t>(s.workspace_bytes));
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.b_alignment);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.a_alignment);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.addend_alignment);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.c_alignment);
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(blas, description_.get(), b_.get(), a_.get(), addend_.get(),
                                       c_.get(), preference, kCandidates, found.data(), &count);
    // The heuristic refuses some odd strides with "invalid value".
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return;
    check_blas(status, "cublasLtMatmulAlgoGetHeuristic", s);
    for (int i = 0; i < count; ++i) {
        const cublasLtMatmulHeuristicResult_t& one = found[static_cast<size_t>(i)];
        if (one.state == CUBLAS_STATUS_SUCCESS) candidates_.push_back(one.algo);
    }
}

cublasStatus_t ProductPlan::enqueue(cublasLtHandle_t blas, const Product& p,
                                    const Engine::Queue& queue, size_t candidate) {
    if (p.bias) set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data);
    if (p.epilogue != Epilogue::none) {
        set(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux.data);
    }
    const float alpha = 1.0F;
    const float beta = p.addend ? 1.0F : 0.0F;
    return cublasLtMatmul(blas, description_.get(), &alpha, p.b.data, b_.get(), p.a.data, a_.get(),
                          &beta, p.addend ? p.addend.data : p.c.data, addend_.get(), p.c.data,
                          c_.get(), &candidates_[candidate], queue.workspace.data(),
                          queue.workspace.size(), queue.stream);
}

bool ProductPlan::run(cublasLtHandle_t blas, const Product& p, const Engine::Queue& queue) {
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    bool at_fault = !candidates_.empty();
    while (!candidates_.empty()) {
        status = enqueue(blas, p, queue, 0);
        const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED ||
                             status == CUBLAS_STATUS_ARCH_MISMATCH ||
                             status == CUBLAS_STATUS_INVALID_VALUE;
        if (!refused) {
            check_blas(status, "cublasLtMatmul", shape_);
            return true;
        }
        at_fault = at_fault && status == CUBLAS_STATUS_INVALID_VALUE;
        candidates_.erase(candidates_.begin());
    }
    // If all algorithms return "invalid value", the call is invalid, not the algorithm.
    if (at_fault) check_blas(status, "cublasLtMatmul", shape_);
    return false;
}

}  // namespace vocabpipe::kernels::cuda
