// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/product_plan.hpp"

#include <array>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// What vector loads and the tensor memory accelerator ask for. More would only split the cache,
/// and give equal products at different addresses different algorithms and so different bits.
constexpr int kLargestAlignment = 16;

int alignment_of(const void* data, int64_t step, DType type) {
    const auto bits = reinterpret_cast<uintptr_t>(data) |
                      static_cast<uintptr_t>(step * size_of(type)) | uintptr_t{kLargestAlignment};
    return static_cast<int>(bits & -bits);
}

cudaDataType_t cuda_type(DType type) {
    return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

const char* name_of(DType type) {
    return type == DType::bf16 ? "bf16" : "fp32";
}

std::string describe(const ProductShape& s) {
    const auto number = [](int64_t value) { return std::to_string(value); };
    std::string text = "product of (" + number(s.m) + ", " + number(s.k) + ") and (" + number(s.k) +
                       ", " + number(s.n) + ") " + name_of(s.ab_type) + " into " +
                       name_of(s.c_type);
    if (s.batch != 1) text += ", " + number(s.batch) + " times";
    if (s.transpose_a) text += ", the first one transposed";
    if (s.transpose_b) text += ", the second one transposed";
    if (s.has_bias) text += ", with bias";
    if (s.has_addend) text += ", with addend";
    if (s.epilogue != Epilogue::none) text += ", with GELU";
    return text;
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

ProductShape ProductShape::of(const Product& p, const Engine& engine) {
    ProductShape s{.m = p.c.rows,
                   .n = p.c.cols,
                   .k = p.transpose_a ? p.a.rows : p.a.cols,
                   .a_stride = p.a.stride,
                   .b_stride = p.b.stride,
                   .c_stride = p.c.stride};
    s.workspace_bytes = static_cast<int64_t>(engine.workspace().size());
    s.multiprocessors = engine.product_multiprocessors();
    s.batch = p.batch;
    if (p.batch > 1) {
        s.a_step = p.a_step;
        s.b_step = p.b_step;
        s.c_step = p.c_step;
    }
    s.a_alignment = alignment_of(p.a.data, s.a_step, p.a.dtype);
    s.b_alignment = alignment_of(p.b.data, s.b_step, p.b.dtype);
    s.c_alignment = alignment_of(p.c.data, s.c_step, p.c.dtype);
    s.ab_type = p.a.dtype;
    s.c_type = p.c.dtype;
    s.transpose_a = p.transpose_a;
    s.transpose_b = p.transpose_b;
    s.has_addend = static_cast<bool>(p.addend);
    s.addend_stride = s.has_addend ? p.addend.stride : s.c_stride;
    s.addend_alignment =
        s.has_addend ? alignment_of(p.addend.data, s.c_step, p.addend.dtype) : s.c_alignment;
    s.has_bias = static_cast<bool>(p.bias);
    if (s.has_bias) {
        s.bias_type = p.bias.dtype;
        s.bias_alignment = alignment_of(p.bias.data, 0, p.bias.dtype);
    }
    s.epilogue = p.epilogue;
    if (p.epilogue != Epilogue::none) s.aux_stride = p.aux.stride;
    return s;
}

size_t ProductShapeHash::operator()(const ProductShape& s) const {
    uint64_t hash = 0;
    const auto mix = [&](int64_t value) {
        hash = (hash ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
    };
    for (const int64_t value : {s.m, s.n, s.k, s.a_stride, s.b_stride, s.c_stride, s.addend_stride,
                                s.aux_stride, s.batch, s.a_step, s.b_step, s.c_step}) {
        mix(value);
    }
    mix(s.workspace_bytes);
    mix(s.multiprocessors);
    mix(s.a_alignment | s.b_alignment << 8 | s.c_alignment << 16 | s.addend_alignment << 24);
    mix(s.bias_alignment);
    for (const DType type : {s.ab_type, s.c_type, s.bias_type}) mix(static_cast<int64_t>(type));
    mix(s.transpose_a | s.transpose_b << 1 | s.has_addend << 2 | s.has_bias << 3);
    mix(static_cast<int64_t>(s.epilogue));
    return hash;
}

// A row-major matrix is the transpose of the column-major one in the same memory, and
// c^T = op(b)^T op(a)^T: cuBLASLt's A is b, its B is a, its D (n, m) is c.
ProductPlan::ProductPlan(cublasLtHandle_t blas, const ProductShape& s) : shape_(s) {
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
    a_ = layout(s.ab_type, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, s.a_stride,
                s.batch, s.a_step);
    b_ = layout(s.ab_type, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.b_stride,
                s.batch, s.b_step);
    c_ = layout(s.c_type, s.m, s.n, s.c_stride, s.batch, s.c_step);
    addend_ = layout(s.c_type, s.m, s.n, s.addend_stride, s.batch, s.c_step);
    list_candidates(blas, s);
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
    // The heuristic takes alignments from these pointers, which it does not follow: the tensors'
    // own would let equal shapes get different algorithms.
    const auto somewhere = [](int alignment) {
        return reinterpret_cast<void*>(static_cast<uintptr_t>(alignment));
    };
    if (s.has_bias) {
        set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere(s.bias_alignment));
    }
    if (s.epilogue != Epilogue::none) {
        set(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
            somewhere(kLargestAlignment));
    }
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
    // Some refusals of odd strides come as an invalid value.
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
    // What all of them call invalid is the call and not the algorithm.
    if (at_fault) check_blas(status, "cublasLtMatmul", shape_);
    return false;
}

}  // namespace vocabpipe::kernels::cuda
