// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/head_norm.hpp"

#include "kernels/reference/head_norm.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct Case {
    AttentionShape shape;
    int64_t gap;
};
// Heads shared by 8, 16 and 32 lanes, by fewer than a warp has vectors for, and odd ones.
const Case kCases[] = {
    {{.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1}, 3},
    {{.sequences = 2, .seq_length = 3, .heads = 3, .head_size = 17, .kv_heads = 1}, 3},
    {{.sequences = 1, .seq_length = 7, .heads = 4, .head_size = 64, .kv_heads = 2}, 8},
    {{.sequences = 1, .seq_length = 5, .heads = 2, .head_size = 128, .kv_heads = 1}, 0},
    {{.sequences = 1, .seq_length = 3, .heads = 2, .head_size = 200, .kv_heads = 2}, 8},
    {{.sequences = 1, .seq_length = 2, .heads = 1, .head_size = 264, .kv_heads = 1}, 8},
};
const RmsNormOptions kOptions{.weight_offset = 0.25F};

class CudaHeadNorm : public OnDeviceWithParam<DType> {
protected:
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

/// As in tests/kernels/cuda/rms_norm_test.cpp.
double z_relative(const AttentionShape& shape) {
    return static_cast<double>(shape.head_size + 16) * kEps32;
}
bool in_v(const AttentionShape& shape, int64_t col) {
    return col >= shape.query_columns() + shape.kv_columns();
}

TEST_P(CudaHeadNorm, ForwardAgreesWithTheReferenceAndCopiesV) {
    const DType type = GetParam();
    Device device;
    for (const auto& [shape, gap] : kCases) {
        SCOPED_TRACE(shape.head_size);
        const int64_t n = shape.tokens(), norms = shape.heads + shape.kv_heads;
        const auto qkv = random_with_gap(n, shape.qkv_columns(), type, gap, 1, -0.5, 1.5);
        const auto gamma_q = random_with_gap(1, shape.head_size, type, gap, 2, 0.5, 1.5);
        const auto gamma_k = random_with_gap(1, shape.head_size, type, gap, 3, 2.0, 3.0);
        Matrix exact(n, shape.qkv_columns(), DType::fp64), exact_norms(n, norms, DType::fp64);
        reference::head_norm_forward(host, qkv, gamma_q, gamma_k, kOptions, shape, exact,
                                     exact_norms);
        const DeviceMatrix dqkv(device, qkv), dgamma_q(device, gamma_q), dgamma_k(device, gamma_k);
        const DeviceMatrix out(device, Matrix(n, shape.qkv_columns(), type, gap));
        const DeviceMatrix statistics(device, Matrix(n, norms, DType::fp32));
        cuda::head_norm_forward(device.context(), dqkv, dgamma_q, dgamma_k, kOptions, shape, out,
                                statistics);
        expect_close(out.download(), exact, [&](int64_t row, int64_t col) {
            if (in_v(shape, col)) return 0.0;
            return std::abs(exact.get(row, col)) * (z_relative(shape) + unit_roundoff(type)) * 1.01;
        });
        expect_close(statistics.download(), exact_norms, [&](int64_t row, int64_t col) {
            return exact_norms.get(row, col) * z_relative(shape);
        });
    }
}

TEST_P(CudaHeadNorm, InputGradientAgreesWithTheReferenceAndCopiesThatOfV) {
    const DType type = GetParam();
    Device device;
    for (const auto& [shape, gap] : kCases) {
        SCOPED_TRACE(shape.head_size);
        const int64_t n = shape.tokens(), d = shape.head_size;
        const auto qkv = random_with_gap(n, shape.qkv_columns(), type, gap, 1, -0.5, 1.5);
        const auto dout = random_with_gap(n, shape.qkv_columns(), type, gap, 2);
        const auto gamma_q = random_with_gap(1, d, type, gap, 3, 0.5, 1.5);
        const auto gamma_k = random_with_gap(1, d, type, gap, 4, 2.0, 3.0);
        const auto statistics =
            Matrix::random(n, shape.heads + shape.kv_heads, DType::fp32, 5, 0.5, 2.0);
        Matrix exact(n, shape.qkv_columns(), DType::fp64);
        reference::head_norm_backward_input(host, dout, qkv, gamma_q, gamma_k, kOptions, statistics,
                                            shape, exact);
        const DeviceMatrix ddout(device, dout), in(device, qkv), dstatistics(device, statistics);
        const DeviceMatrix dgamma_q(device, gamma_q), dgamma_k(device, gamma_k);
        const DeviceMatrix dqkv(device, Matrix(n, shape.qkv_columns(), type, gap));
        cuda::head_norm_backward_input(device.context(), ddout, in, dgamma_q, dgamma_k, kOptions,
                                       dstatistics, shape, dqkv);
        const auto z = [&](int64_t row, int64_t col) {
            return std::abs(qkv.get(row, col)) * statistics.get(row, col / d);
        };
        const auto g = [&](int64_t row, int64_t col) {
            const Matrix& gamma = col < shape.query_columns() ? gamma_q : gamma_k;
            return std::abs(dout.get(row, col)) *
                   (gamma.get(0, col % d) + static_cast<double>(kOptions.weight_offset));
        };
        expect_close(dqkv.download(), exact, [&](int64_t row, int64_t col) {
            if (in_v(shape, col)) return 0.0;
            double mean = 0;
            for (int64_t i = col / d * d; i < col / d * d + d; ++i) {
                mean += g(row, i) * z(row, i) / static_cast<double>(d);
            }
            const double size = statistics.get(row, col / d) * (g(row, col) + z(row, col) * mean);
            const double error = size * z_relative(shape);
            return error + unit_roundoff(type) * (std::abs(exact.get(row, col)) + error) * 1.01;
        });
    }
}

TEST_P(CudaHeadNorm, WeightGradientsSumOverTokensAndHeadsAndAccumulate) {
    const DType type = GetParam();
    Device device;
    for (const auto& [shape, gap] : kCases) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(testing::Message() << shape.head_size << " " << accumulate);
            const int64_t n = shape.tokens(), d = shape.head_size;
            const auto qkv = random_with_gap(n, shape.qkv_columns(), type, gap, 1, -0.5, 1.5);
            const auto dout = random_with_gap(n, shape.qkv_columns(), type, gap, 2);
            const auto statistics =
                Matrix::random(n, shape.heads + shape.kv_heads, DType::fp32, 3, 0.5, 2.0);
            const auto start = [&](unsigned seed) {
                return accumulate ? Matrix::random(1, d, DType::fp32, seed)
                                  : Matrix(1, d, DType::fp32);
            };
            const Matrix start_q = start(4), start_k = start(5);
            auto exact_q = start_q.as(DType::fp64), exact_k = start_k.as(DType::fp64);
            auto size_q = start_q.magnitude(), size_k = start_k.magnitude();
            reference::head_norm_backward_weight(host, dout, qkv, statistics, shape, exact_q,
                                                 exact_k, accumulate);
            reference::head_norm_backward_weight(host, dout.magnitude(), qkv.magnitude(),
                                                 statistics, shape, size_q, size_k, accumulate);
            const DeviceMatrix ddout(device, dout), in(device, qkv);
            const DeviceMatrix dstatistics(device, statistics);
            const DeviceMatrix dgamma_q(device, start_q), dgamma_k(device, start_k);
            cuda::head_norm_backward_weight(device.context(), ddout, in, dstatistics, shape,
                                            dgamma_q, dgamma_k, accumulate);
            expect_close(dgamma_q.download(), exact_q,
                         sum_bound(size_q, exact_q, n * shape.heads + 3, DType::fp32));
            expect_close(dgamma_k.download(), exact_k,
                         sum_bound(size_k, exact_k, n * shape.kv_heads + 3, DType::fp32));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaHeadNorm, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test
