// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "hooks.hpp"
#include "lost_context.hpp"
#include "matmul.hpp"
#include "matmul_algorithms.hpp"
#include "memory.hpp"
#include "multiprocessors.hpp"
#include "stream.hpp"
#include "stream_queue.hpp"

struct cublasLtContext {
    int device;
};

namespace {

using namespace cuda_stand_in;

MatrixLayout& layout_of(cublasLtMatrixLayout_t handle) {
    return *reinterpret_cast<MatrixLayout*>(handle);
}
MatmulDescription& description_of(cublasLtMatmulDesc_t handle) {
    return *reinterpret_cast<MatmulDescription*>(handle);
}
Preference& preference_of(cublasLtMatmulPreference_t handle) {
    return *reinterpret_cast<Preference*>(handle);
}

struct Field {
    void* address;
    size_t bytes;
};

template <typename T>
Field field(T& member) {
    return {&member, sizeof member};
}

std::optional<Field> field_of(MatrixLayout& layout, cublasLtMatrixLayoutAttribute_t attribute) {
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_TYPE:
            return field(layout.type);
        case CUBLASLT_MATRIX_LAYOUT_ORDER:
            return field(layout.order);
        case CUBLASLT_MATRIX_LAYOUT_ROWS:
            return field(layout.rows);
        case CUBLASLT_MATRIX_LAYOUT_COLS:
            return field(layout.columns);
        case CUBLASLT_MATRIX_LAYOUT_LD:
            return field(layout.leading);
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
            return field(layout.batch);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
            return field(layout.batch_stride);
        default:
            return std::nullopt;
    }
}

std::optional<Field> field_of(MatmulDescription& op, cublasLtMatmulDescAttributes_t attribute) {
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
            return field(op.compute);
        case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
            return field(op.scale);
        case CUBLASLT_MATMUL_DESC_POINTER_MODE:
            return field(op.pointer_mode);
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return field(op.transpose_a);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return field(op.transpose_b);
        case CUBLASLT_MATMUL_DESC_TRANSC:
            return field(op.transpose_c);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return field(op.epilogue);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return field(op.bias);
        case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
            return field(op.bias_batch_stride);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return field(op.bias_type);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            return field(op.aux);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
            return field(op.aux_leading);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
            return field(op.aux_batch_stride);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
            return field(op.aux_type);
        case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
            return field(op.multiprocessors);
        default:
            return std::nullopt;
    }
}

cublasStatus_t set(const std::optional<Field>& target, const void* value, size_t bytes) {
    if (!target || value == nullptr || bytes != target->bytes) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    std::memcpy(target->address, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get(const std::optional<Field>& source, void* value, size_t bytes, size_t* written) {
    if (!source || (bytes == 0 ? written == nullptr : value == nullptr || bytes != source->bytes)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (bytes != 0) {
        std::memcpy(value, source->address, bytes);
    }
    if (written != nullptr) {
        *written = source->bytes;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t entered(const char* function) {
    return enter(function) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

/// On a GPU this is an illegal access some time later.
void require_device_memory(const char* name, const void* data, uint64_t elements, int32_t type) {
    if (!is_device_memory(data, elements * element_bytes(type))) {
        die("cublasLtMatmul: the %lu bytes of %s at %p are not inside of one allocation of a "
            "device",
            elements * element_bytes(type), name, data);
    }
}

void require_operands(const Matmul& matmul, const void* a, const void* b, const void* c,
                      const void* d, float beta) {
    const MatmulDescription& op = matmul.op;
    require_device_memory("A", a, matmul.a.span(), matmul.a.type);
    require_device_memory("B", b, matmul.b.span(), matmul.b.type);
    require_device_memory("D", d, matmul.d.span(), matmul.d.type);
    if (beta != 0.0F) {
        require_device_memory("C", c, matmul.c.span(), matmul.c.type);
    }
    if (op.uses_bias_pointer()) {
        require_device_memory("the bias", op.bias,
                              op.epilogue == CUBLASLT_EPILOGUE_BGRADB ? matmul.n() : matmul.m(),
                              matmul.d.type);
    }
    if (op.uses_aux()) {
        require_device_memory("the epilogue's aux", op.aux,
                              static_cast<uint64_t>(op.aux_leading) * (matmul.n() - 1) + matmul.m(),
                              matmul.d.type);
    }
}

bool aligned(const void* pointer, uint64_t bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
    if (const cublasStatus_t status = entered(__func__)) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *lightHandle = new cublasLtContext{current_device()};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
    delete lightHandle;
    return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_ARCH_MISMATCH:
            return "CUBLAS_STATUS_ARCH_MISMATCH";
        case CUBLAS_STATUS_MAPPING_ERROR:
            return "CUBLAS_STATUS_MAPPING_ERROR";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_INTERNAL_ERROR:
            return "CUBLAS_STATUS_INTERNAL_ERROR";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        case CUBLAS_STATUS_LICENSE_ERROR:
            return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "CUBLAS_STATUS_UNKNOWN";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
    return cublasLtGetStatusName(status);
}

size_t cublasLtGetVersion(void) {
    return CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100 + CUBLAS_VER_PATCH;
}

size_t cublasLtGetCudartVersion(void) {
    return CUDART_VERSION;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    auto* const layout = new MatrixLayout;
    layout->type = type;
    layout->rows = rows;
    layout->columns = cols;
    layout->leading = ld;
    *matLayout = reinterpret_cast<cublasLtMatrixLayout_t>(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
    delete &layout_of(matLayout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, size_t sizeInBytes) {
    return set(field_of(layout_of(matLayout), attr), buf, sizeInBytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr, void* buf,
                                                size_t sizeInBytes, size_t* sizeWritten) {
    return get(field_of(layout_of(matLayout), attr), buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType) {
    auto* const op = new MatmulDescription;
    op->compute = computeType;
    op->scale = scaleType;
    *matmulDesc = reinterpret_cast<cublasLtMatmulDesc_t>(op);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
    delete &description_of(matmulDesc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              size_t sizeInBytes) {
    return set(field_of(description_of(matmulDesc), attr), buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, void* buf,
                                              size_t sizeInBytes, size_t* sizeWritten) {
    return get(field_of(description_of(matmulDesc), attr), buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
    *pref = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
    delete &preference_of(pref);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void* buf, size_t sizeInBytes) {
    Preference& preference = preference_of(pref);
    uint64_t ignored = 0;
    switch (attr) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return set(field(preference.workspace), buf, sizeInBytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            return set(
                field(preference.alignment[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES]), buf,
                sizeInBytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            return set(field(preference.reductions), buf, sizeInBytes);
        case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
            return set(Field{&ignored, sizeof(uint32_t)}, buf, sizeInBytes);
        case CUBLASLT_MATMUL_PREF_IMPL_MASK:
            return set(field(ignored), buf, sizeInBytes);
        default:
            return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int* returnAlgoCount) {
    if (returnAlgoCount != nullptr) {
        *returnAlgoCount = 0;
    }
    if (const cublasStatus_t status = entered(__func__)) {
        return status;
    }
    count(&Counters::heuristics);
    if (lightHandle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (requestedAlgoCount <= 0 || heuristicResultsArray == nullptr || returnAlgoCount == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const Matmul matmul{description_of(operationDesc), layout_of(Adesc), layout_of(Bdesc),
                        layout_of(Cdesc), layout_of(Ddesc)};
    if (const cublasStatus_t status = check(matmul)) {
        return status;
    }
    const std::vector<Algorithm> found =
        algorithms_for(matmul, preference_of(preference), static_cast<size_t>(requestedAlgoCount));
    for (size_t i = 0; i < found.size(); ++i) {
        cublasLtMatmulHeuristicResult_t& result = heuristicResultsArray[i];
        result = {};
        std::memcpy(&result.algo, &found[i], sizeof(Algorithm));
        result.workspaceSize = found[i].workspace;
        result.state = CUBLAS_STATUS_SUCCESS;
        result.wavesCount = 1.0F;
    }
    *returnAlgoCount = static_cast<int>(found.size());
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t lightHandle,
                                       cublasLtMatmulDesc_t operationDesc,
                                       cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                       cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
    if (const cublasStatus_t status = entered(__func__)) {
        return status;
    }
    if (lightHandle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (algo == nullptr || result == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const Matmul matmul{description_of(operationDesc), layout_of(Adesc), layout_of(Bdesc),
                        layout_of(Cdesc), layout_of(Ddesc)};
    if (const cublasStatus_t status = check(matmul)) {
        return status;
    }
    Algorithm algorithm;
    std::memcpy(static_cast<void*>(&algorithm), algo, sizeof algorithm);
    if (algorithm.problem != problem_of(matmul)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    result->workspaceSize = algorithm.workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1.0F;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc,
                              const void* B, cublasLtMatrixLayout_t Bdesc, const void* beta,
                              const void* C, cublasLtMatrixLayout_t Cdesc, void* D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspaceSizeInBytes, cudaStream_t stream) {
    if (const cublasStatus_t status = entered(__func__)) {
        return status;
    }
    if (lightHandle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (lightHandle->device != current_device() || device_of(stream) != current_device() ||
        alpha == nullptr || beta == nullptr || C == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const Matmul matmul{description_of(computeDesc), layout_of(Adesc), layout_of(Bdesc),
                        layout_of(Cdesc), layout_of(Ddesc)};
    if (const cublasStatus_t status = check(matmul)) {
        return status;
    }
    if (D == A || D == B || (C == D && matmul.c != matmul.d)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    Algorithm algorithm{.problem = problem_of(matmul)};
    if (algo != nullptr) {
        std::memcpy(static_cast<void*>(&algorithm), algo, sizeof algorithm);
    }
    if (algorithm.problem != problem_of(matmul) || algorithm.workspace > workspaceSizeInBytes ||
        (algorithm.workspace > 0 &&
         (!aligned(workspace, 256) || !is_device_memory(workspace, algorithm.workspace)))) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const void* const operands[] = {A, B, C, D};
    const cudaDataType_t types[] = {matmul.a.type, matmul.b.type, matmul.c.type, matmul.d.type};
    for (int i = 0; i < 4; ++i) {
        if (!aligned(operands[i],
                     std::max<uint64_t>(algorithm.alignment[i], element_bytes(types[i])))) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    if (algorithm.refused) {
        count(&Counters::refused_matmuls);
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const bool on_host = matmul.op.pointer_mode == CUBLASLT_POINTER_MODE_HOST;
    const auto* const alpha_at = static_cast<const float*>(alpha);
    const auto* const beta_at = static_cast<const float*>(beta);
    MatmulOperands values{A, B, C, D, on_host ? *alpha_at : 0.0F, on_host ? *beta_at : 0.0F};
    require_operands(matmul, A, B, C, D, on_host ? values.beta : 1.0F);
    count(&Counters::matmuls);
    enqueue(stream, [=, device = lightHandle->device, bytes = algorithm.workspace]() mutable {
        if (awaits_failing_kernel() && fails(device, "cublasLtMatmul")) return;
        const int target = matmul.op.multiprocessors;
        const int free = multiprocessors() - held_multiprocessors(device);
        if ((target > 0 ? target : multiprocessors()) > free) count(&Counters::crowded_matmuls);
        if (!on_host) {
            values.alpha = *alpha_at;
            values.beta = *beta_at;
        }
        if (bytes > 0) {
            // A workspace that two streams share is a race here, as it is on a GPU.
            std::memset(workspace, 0xff, bytes);
        }
        multiply(matmul, values, algorithm.summation);
        std::this_thread::sleep_for(std::chrono::microseconds(algorithm.delay_us));
    });
    return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
