// SPDX-License-Identifier: Apache-2.0
#include "matmul.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <vector>

namespace cuda_stand_in {

namespace {

float load(const void* data, int32_t type, uint64_t index) {
    if (type == CUDA_R_32F) {
        return static_cast<const float*>(data)[index];
    }
    const uint32_t bits = static_cast<const uint16_t*>(data)[index];
    return std::bit_cast<float>(bits << 16);
}

void store(void* data, int32_t type, uint64_t index, float value) {
    if (type == CUDA_R_32F) {
        static_cast<float*>(data)[index] = value;
        return;
    }
    const auto bits = std::bit_cast<uint32_t>(value);
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(
        std::isnan(value) ? 0x7fffU : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

void* advance(void* data, int32_t type, int64_t elements) {
    return static_cast<char*>(data) + elements * static_cast<int64_t>(element_bytes(type));
}
const void* advance(const void* data, int32_t type, int64_t elements) {
    return static_cast<const char*>(data) + elements * static_cast<int64_t>(element_bytes(type));
}

// GELU by tanh, as cuBLASLt computes it.
constexpr float gelu_scale = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float gelu_cubic = 0.044715F;

float gelu(float x) {
    return 0.5F * x * (1.0F + std::tanh(gelu_scale * (x + gelu_cubic * x * x * x)));
}

float gelu_derivative(float x) {
    const float t = std::tanh(gelu_scale * (x + gelu_cubic * x * x * x));
    const float inner = gelu_scale * (1.0F + 3.0F * gelu_cubic * x * x);
    return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner;
}

/// op(matrix) as rows of fp32, without gaps.
std::vector<float> unpack(const MatrixLayout& layout, const void* data, int32_t transpose) {
    const bool straight = transpose == CUBLAS_OP_N;
    const uint64_t rows = straight ? layout.rows : layout.columns;
    const uint64_t columns = straight ? layout.columns : layout.rows;
    std::vector<float> values(rows * columns);
    for (uint64_t r = 0; r < rows; ++r) {
        for (uint64_t c = 0; c < columns; ++c) {
            values[r * columns + c] =
                load(data, layout.type, straight ? layout.at(r, c) : layout.at(c, r));
        }
    }
    return values;
}

float rounded(float value, int32_t type) {
    uint32_t bits[1] = {};
    store(bits, type, 0, value);
    return load(bits, type, 0);
}

/// Different in every call: where parts of a sum meet in no fixed order.
uint64_t next_turn() {
    static std::atomic<uint64_t> turn{0};
    return turn.fetch_add(1, std::memory_order_relaxed);
}

struct Dimensions {
    uint64_t m, n, k;
};

/// out[m, n] += a[m, first..last) b[first..last, n], the terms of a chunk among themselves first.
void add_part(std::vector<float>& out, const std::vector<float>& a, const std::vector<float>& b,
              const Dimensions& size, uint64_t first, uint64_t last, uint64_t chunk) {
    const auto [m, n, k] = size;
    std::vector<float> terms(n);
    for (uint64_t i = 0; i < m; ++i) {
        float* const row = out.data() + i * n;
        for (uint64_t begin = first; begin < last; begin += chunk) {
            std::fill(terms.begin(), terms.end(), 0.0F);
            for (uint64_t l = begin; l < std::min(begin + chunk, last); ++l) {
                const float factor = a[i * k + l];
                const float* const other = b.data() + l * n;
                for (uint64_t j = 0; j < n; ++j) {
                    terms[j] += factor * other[j];
                }
            }
            for (uint64_t j = 0; j < n; ++j) {
                row[j] += terms[j];
            }
        }
    }
}

/// a[m, k] b[k, n]; `type` is that of D.
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b,
                           const Dimensions& size, const Summation& how, int32_t type) {
    const bool in_place = how.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE;
    const bool narrow = in_place || how.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    const uint64_t turn = in_place ? next_turn() : 0;
    std::vector<float> out(size.m * size.n, 0.0F);
    for (uint64_t i = 0; i < how.splits; ++i) {
        const uint64_t part = (i + turn) % how.splits;
        const uint64_t first = size.k * part / how.splits;
        const uint64_t last = size.k * (part + 1) / how.splits;
        if (how.splits == 1) {
            add_part(out, a, b, size, first, last, how.chunk);
            break;
        }
        std::vector<float> sums(out.size(), 0.0F);
        add_part(sums, a, b, size, first, last, how.chunk);
        for (size_t at = 0; at < out.size(); ++at) {
            out[at] += narrow ? rounded(sums[at], type) : sums[at];
            if (in_place) out[at] = rounded(out[at], type);
        }
    }
    return out;
}

void multiply_one(const Matmul& matmul, const MatmulOperands& operands, const Summation& summation,
                  void* bias, void* aux) {
    const MatmulDescription& op = matmul.op;
    const uint64_t m = matmul.m();
    const uint64_t n = matmul.n();
    const uint64_t k = matmul.k();
    const int32_t bias_type = op.bias_type >= 0 ? op.bias_type : matmul.d.type;
    const int32_t aux_type = op.aux_type >= 0 ? op.aux_type : matmul.d.type;
    const std::vector<float> a = unpack(matmul.a, operands.a, op.transpose_a);
    const std::vector<float> b = unpack(matmul.b, operands.b, op.transpose_b);
    const std::vector<float> sums = product(a, b, {m, n, k}, summation, matmul.d.type);

    for (uint64_t i = 0; i < m; ++i) {
        const float added = op.adds_bias() ? load(bias, bias_type, i) : 0.0F;
        float gradient = 0.0F;
        for (uint64_t j = 0; j < n; ++j) {
            float value = operands.alpha * sums[i * n + j];
            if (operands.beta != 0.0F) {  // else C is not read: it may hold NaN
                value += operands.beta * load(operands.c, matmul.c.type, matmul.c.at(i, j));
            }
            value += added;
            const uint64_t at_aux = i + j * static_cast<uint64_t>(op.aux_leading);
            if (op.has(CUBLASLT_EPILOGUE_DGELU)) {
                value *= gelu_derivative(load(aux, aux_type, at_aux));
            } else if (op.has(CUBLASLT_EPILOGUE_GELU)) {
                if (op.uses_aux()) {
                    store(aux, aux_type, at_aux, value);
                }
                value = gelu(value);
            }
            gradient += value;
            store(operands.d, matmul.d.type, matmul.d.at(i, j), value);
        }
        if (op.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
            store(bias, bias_type, i, gradient);
        }
    }
    if (op.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
        for (uint64_t i = 0; i < m; ++i) {
            float sum = 0.0F;
            for (uint64_t l = 0; l < k; ++l) {
                sum += a[i * k + l];
            }
            store(bias, bias_type, i, sum);
        }
    } else if (op.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
        for (uint64_t j = 0; j < n; ++j) {
            float sum = 0.0F;
            for (uint64_t l = 0; l < k; ++l) {
                sum += b[l * n + j];
            }
            store(bias, bias_type, j, sum);
        }
    }
}

bool well_formed(const MatrixLayout& layout) {
    const uint64_t contiguous = layout.order == CUBLASLT_ORDER_COL ? layout.rows : layout.columns;
    return layout.rows > 0 && layout.columns > 0 && layout.rows <= INT_MAX &&
           layout.columns <= INT_MAX && layout.batch > 0 && layout.batch_stride >= 0 &&
           layout.leading >= static_cast<int64_t>(contiguous) &&
           (layout.order == CUBLASLT_ORDER_COL || layout.order == CUBLASLT_ORDER_ROW);
}

bool known(uint32_t epilogue) {
    switch (epilogue) {
        case CUBLASLT_EPILOGUE_DEFAULT:
        case CUBLASLT_EPILOGUE_BIAS:
        case CUBLASLT_EPILOGUE_GELU:
        case CUBLASLT_EPILOGUE_GELU_BIAS:
        case CUBLASLT_EPILOGUE_GELU_AUX:
        case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        case CUBLASLT_EPILOGUE_DGELU:
        case CUBLASLT_EPILOGUE_DGELU_BGRAD:
        case CUBLASLT_EPILOGUE_BGRADA:
        case CUBLASLT_EPILOGUE_BGRADB:
            return true;
        default:
            return false;
    }
}

bool known_types(const Matmul& matmul) {
    const cudaDataType_t in = matmul.a.type;
    const cudaDataType_t out = matmul.d.type;
    const bool compute_known =
        matmul.op.compute == CUBLAS_COMPUTE_32F ||
        matmul.op.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
        (matmul.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && in == CUDA_R_32F);
    return compute_known && matmul.op.scale == CUDA_R_32F && matmul.b.type == in &&
           matmul.c.type == out &&
           ((in == CUDA_R_32F && out == CUDA_R_32F) ||
            (in == CUDA_R_16BF && (out == CUDA_R_16BF || out == CUDA_R_32F)));
}

}  // namespace

uint64_t element_bytes(int32_t type) {
    return type == CUDA_R_32F ? 4 : 2;
}

uint64_t MatrixLayout::span() const {
    return at(rows - 1, columns - 1) + 1 + static_cast<uint64_t>(batch - 1) * batch_stride;
}

cublasStatus_t check(const Matmul& matmul) {
    const MatmulDescription& op = matmul.op;
    for (const MatrixLayout* layout : {&matmul.a, &matmul.b, &matmul.c, &matmul.d}) {
        if (!well_formed(*layout) || layout->batch != matmul.d.batch) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    const uint64_t rows_a = op.transpose_a == CUBLAS_OP_N ? matmul.a.rows : matmul.a.columns;
    const uint64_t rows_b = op.transpose_b == CUBLAS_OP_N ? matmul.b.rows : matmul.b.columns;
    const uint64_t columns_b = op.transpose_b == CUBLAS_OP_N ? matmul.b.columns : matmul.b.rows;
    if (rows_a != matmul.m() || columns_b != matmul.n() || rows_b != matmul.k() ||
        matmul.c.rows != matmul.m() || matmul.c.columns != matmul.n()) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!known_types(matmul) || !known(op.epilogue) || op.transpose_c != CUBLAS_OP_N) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    // Bias and aux are described for column-major results only.
    if (op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && matmul.d.order != CUBLASLT_ORDER_COL) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (op.uses_aux() && (op.aux_leading % 8 != 0 || op.aux_batch_stride % 8 != 0 ||
                          op.aux_leading < static_cast<int64_t>(matmul.m()) ||
                          (op.aux_type >= 0 && op.aux_type != matmul.d.type))) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const bool bias = op.uses_bias_pointer();
    if (bias && op.bias_type >= 0 && op.bias_type != matmul.d.type) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return op.writes_bias_gradient() && matmul.d.batch > 1 ? CUBLAS_STATUS_NOT_SUPPORTED
                                                           : CUBLAS_STATUS_SUCCESS;
}

void multiply(const Matmul& matmul, const MatmulOperands& operands, const Summation& summation) {
    const int32_t bias_type = matmul.op.bias_type >= 0 ? matmul.op.bias_type : matmul.d.type;
    const int32_t aux_type = matmul.op.aux_type >= 0 ? matmul.op.aux_type : matmul.d.type;
    for (int64_t i = 0; i < matmul.d.batch; ++i) {
        MatmulOperands one = operands;
        one.a = advance(operands.a, matmul.a.type, i * matmul.a.batch_stride);
        one.b = advance(operands.b, matmul.b.type, i * matmul.b.batch_stride);
        one.c = advance(operands.c, matmul.c.type, i * matmul.c.batch_stride);
        one.d = advance(operands.d, matmul.d.type, i * matmul.d.batch_stride);
        multiply_one(matmul, one, summation,
                     advance(matmul.op.bias, bias_type, i * matmul.op.bias_batch_stride),
                     advance(matmul.op.aux, aux_type, i * matmul.op.aux_batch_stride));
    }
}

}  // namespace cuda_stand_in
