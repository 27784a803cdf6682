// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm.hpp"

#include <algorithm>
#include <string>

#include "kernels/check.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/engine_state.hpp"
#include "kernels/cuda/tiled_gemm.hpp"
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

void check_blas(cublasStatus_t status, const char* call, const ProductShape* shape = nullptr) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    std::string text = std::string(call) + ": " + cublasLtGetStatusName(status);
    if (shape != nullptr) text += " for a " + describe(*shape);
    throw DeviceError(text);
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

ProductShape shape_of(const Product& p, int64_t workspace_bytes) {
    ProductShape s{.m = p.c.rows,
                   .n = p.c.cols,
                   .k = p.transpose_a ? p.a.rows : p.a.cols,
                   .a_stride = p.a.stride,
                   .b_stride = p.b.stride,
                   .c_stride = p.c.stride};
    s.workspace_bytes = workspace_bytes;
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

/// What cuBLASLt documents that it cannot do, or would refuse with another error than "none".
bool may_exist(const Product& p) {
    if (p.a.dtype == DType::fp32 && p.c.dtype != DType::fp32) return false;
    if (p.bias && p.bias.dtype != p.c.dtype) return false;
    if (p.epilogue != Epilogue::none) {
        const bool aligned = reinterpret_cast<uintptr_t>(p.aux.data) % kLargestAlignment == 0;
        if (!aligned || p.aux.stride % 8 != 0 || p.aux.dtype != p.c.dtype) return false;
    }
    return true;
}

void require_product(const Product& p) {
    const int64_t k = p.transpose_a ? p.a.rows : p.a.cols;
    require((p.transpose_a ? p.a.cols : p.a.rows) == p.c.rows, "rows of op(a) == rows of c");
    require((p.transpose_b ? p.b.rows : p.b.cols) == p.c.cols, "columns of op(b) == columns of c");
    require((p.transpose_b ? p.b.cols : p.b.rows) == k, "columns of op(a) == rows of op(b)");
    require(!p.bias || has_shape(p.bias, 1, p.c.cols), "bias of shape (1, n)");
    require(p.batch == 1 || (!p.bias && p.epilogue == Epilogue::none), "one product per bias");
    require(p.a.dtype == p.b.dtype && p.a.dtype != DType::fp64, "a and b both fp32 or both bf16");
    require(p.c.dtype != DType::fp64, "c fp32 or bf16");
    require(!p.addend || (same_shape(p.addend, p.c) && p.addend.dtype == p.c.dtype),
            "addend of c's shape and type");
}

bool empty(const Product& p) {
    return p.c.size() == 0 || p.batch == 0;
}

}  // namespace

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
    mix(s.a_alignment | s.b_alignment << 8 | s.c_alignment << 16 | s.addend_alignment << 24);
    mix(s.bias_alignment);
    for (const DType type : {s.ab_type, s.c_type, s.bias_type}) mix(static_cast<int64_t>(type));
    mix(s.transpose_a | s.transpose_b << 1 | s.has_addend << 2 | s.has_bias << 3);
    mix(static_cast<int64_t>(s.epilogue));
    return hash;
}

// A row-major matrix is the transpose of the column-major one in the same memory, and
// c^T = op(b)^T op(a)^T: cuBLASLt's A is b, its B is a, its D (n, m) is c.
ProductPlan::ProductPlan(cublasLtHandle_t blas, const ProductShape& s, const Product& product) {
    cublasLtMatmulDesc_t desc = nullptr;
    check_blas(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    description_.reset(desc);
    const cublasOperation_t op_b = s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t op_a = s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, op_b);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, op_a);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(s));
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
    point_at(product);  // the choice may look at the addresses
    choose(blas, s);
}

void ProductPlan::point_at(const Product& p) {
    if (p.bias) set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data);
    if (p.epilogue != Epilogue::none) {
        set(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux.data);
    }
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

void ProductPlan::choose(cublasLtHandle_t blas, const ProductShape& s) {
    struct DestroyPreference {
        void operator()(cublasLtMatmulPreference_t p) const {
            (void)cublasLtMatmulPreferenceDestroy(p);
        }
    };
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, DestroyPreference>
        owner(preference);
    const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t attribute, int bytes) {
        set(preference, attribute, static_cast<uint32_t>(bytes));
    };
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        static_cast<uint64_t>(s.workspace_bytes));
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.b_alignment);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.a_alignment);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.addend_alignment);
    alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.c_alignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(blas, description_.get(), b_.get(), a_.get(), addend_.get(),
                                       c_.get(), preference, 1, &found, &count);
    // Some refusals of odd strides come as an invalid value.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return;
    check_blas(status, "cublasLtMatmulAlgoGetHeuristic", &s);
    exists_ = count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
    algorithm_ = found.algo;
}

void ProductPlan::run(cublasLtHandle_t blas, const Product& p, const Engine::Queue& queue) {
    point_at(p);
    const float alpha = 1.0F;
    const float beta = p.addend ? 1.0F : 0.0F;
    const cublasStatus_t status = cublasLtMatmul(
        blas, description_.get(), &alpha, p.b.data, b_.get(), p.a.data, a_.get(), &beta,
        p.addend ? p.addend.data : p.c.data, addend_.get(), p.c.data, c_.get(), &algorithm_,
        queue.workspace.data(), queue.workspace.size(), queue.stream);
    if (status == CUBLAS_STATUS_SUCCESS) return;
    const ProductShape shape = shape_of(p, static_cast<int64_t>(queue.workspace.size()));
    check_blas(status, "cublasLtMatmul", &shape);
}

bool try_multiply(Context& ctx, const Product& p) {
    require_product(p);
    if (empty(p)) return true;
    if (!may_exist(p)) return false;
    Engine& engine = ctx.cuda();
    Engine::State& state = engine.state();
    const Engine::Queue queue{engine.stream(), engine.workspace()};
    const ProductShape shape = shape_of(p, static_cast<int64_t>(queue.workspace.size()));
    if (shape.k == 0) return false;
    ProductPlan& plan = state.products.try_emplace(shape, state.blas, shape, p).first->second;
    if (plan.exists()) plan.run(state.blas, p, queue);
    return plan.exists();
}

void multiply(Context& ctx, const Product& p) {
    require(p.epilogue == Epilogue::none, "a product without epilogue");
    if (try_multiply(ctx, p)) return;
    if (p.bias && p.c.dtype == DType::fp32) {
        Product plain = p;
        plain.bias = {};
        if (try_multiply(ctx, plain)) {
            const ConstTensor everywhere(p.bias.data, p.c.rows, p.c.cols, 0, p.bias.dtype);
            add(ctx, p.c, everywhere, p.c);
            return;
        }
    }
    tiled_gemm(ctx, p);
}

void gemm(Context& ctx, ConstTensor a, bool transpose_a, ConstTensor b, bool transpose_b, Tensor c,
          bool accumulate, ConstTensor bias) {
    require(!accumulate || c.dtype == DType::fp32, "an fp32 c where it is accumulated into");
    Product product{a, transpose_a, b, transpose_b, c, {}, bias};
    if (accumulate) product.addend = c;
    multiply(ctx, product);
}

}  // namespace vocabpipe::kernels::cuda
