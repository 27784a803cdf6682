// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/reference/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/rms_norm_oracle.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct HeadNormCase {
    AttentionShape shape;
    int64_t gap;
};
// Heads shared by 8, 16 and 32 lanes, by fewer than a warp has vectors for, and odd ones.
const HeadNormCase kHeadNormCases[] = {
    {{.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 1, .kv_heads = 1}, 3},
    {{.sequences = 2, .seq_length = 3, .heads = 3, .head_size = 17, .kv_heads = 1}, 3},
    {{.sequences = 1, .seq_length = 7, .heads = 4, .head_size = 64, .kv_heads = 2}, 8},
    {{.sequences = 1, .seq_length = 5, .heads = 2, .head_size = 128, .kv_heads = 1}, 0},
    {{.sequences = 1, .seq_length = 3, .heads = 2, .head_size = 200, .kv_heads = 2}, 8},
    {{.sequences = 1, .seq_length = 2, .heads = 1, .head_size = 264, .kv_heads = 1}, 8},
};
constexpr RmsNormOptions kOptions{.epsilon = 1e-3F, .weight_offset = 1};

class CudaHeadNorm : public OnDeviceWithParam<DType> {
protected:
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

Matrix columns(const Matrix& whole, int64_t first, int64_t count) {
    Matrix part(whole.rows(), count, whole.type());
    for (int64_t row = 0; row < whole.rows(); ++row) {
        for (int64_t col = 0; col < count; ++col) part.set(row, col, whole.get(row, first + col));
    }
    return part;
}

TEST_P(CudaHeadNorm, AgreesWithTheReferenceInBothDirectionsAndCopiesV) {
    const DType type = GetParam();
    Device device;
    for (const HeadNormCase& c : kHeadNormCases) {
        const AttentionShape& shape = c.shape;
        SCOPED_TRACE(testing::Message() << shape.heads << " heads of " << shape.head_size);
        const int64_t n = shape.tokens(), width = shape.qkv_columns(), d = shape.head_size;
        const int64_t heads = shape.heads + shape.kv_heads;
        const auto qkv = random_with_gap(n, width, type, c.gap, 1, -0.5, 1.5);
        const auto dout = random_with_gap(n, width, type, c.gap, 2);
        const auto gamma_q = random_with_gap(1, d, type, c.gap, 3);
        const auto gamma_k = random_with_gap(1, d, type, c.gap, 4);
        Matrix exact(n, width, DType::fp64), exact_dqkv(n, width, DType::fp64);
        Matrix exact_statistics(n, heads, DType::fp64);
        reference::head_norm_forward(host, qkv, gamma_q, gamma_k, kOptions, shape, exact,
                                     exact_statistics);
        const DeviceMatrix in(device, qkv), ddout(device, dout);
        const DeviceMatrix dgamma_q(device, gamma_q), dgamma_k(device, gamma_k);
        const DeviceMatrix normed(device, Matrix(n, width, type, c.gap));
        const DeviceMatrix gradient(device, Matrix(n, width, type, c.gap));
        const DeviceMatrix dstatistics(device, Matrix(n, heads, DType::fp32));
        cuda::head_norm_forward(device.context(), in, dgamma_q, dgamma_k, kOptions, shape, normed,
                                dstatistics);
        cuda::head_norm_backward_input(device.context(), ddout, in, dgamma_q, dgamma_k, kOptions,
                                       dstatistics, shape, gradient);
        const Matrix out = normed.download(), dqkv = gradient.download();
        const Matrix statistics = dstatistics.download();
        reference::head_norm_backward_input(host, dout, qkv, gamma_q, gamma_k, kOptions, statistics,
                                            shape, exact_dqkv);
        for (int64_t head = 0; head < heads; ++head) {
            SCOPED_TRACE(testing::Message() << "head " << head);
            const auto part = [&](const Matrix& whole) { return columns(whole, head * d, d); };
            const Matrix x = part(qkv), y = part(exact), dx = part(exact_dqkv), dy = part(dout);
            const Matrix& gamma = head < shape.heads ? gamma_q : gamma_k;
            const Matrix own = columns(exact_statistics, head, 1);
            const Matrix given = columns(statistics, head, 1);
            const RmsNormErrors forward{x, gamma, kOptions, own, type};
            expect_close(part(out), y, forward.of_forward(y));
            expect_close(given, own, forward.of_statistics());
            const RmsNormErrors backward{x, gamma, kOptions, given, type};
            expect_close(part(dqkv), dx, backward.of_backward_input(dy, dx));
        }
        const auto v = [&](const Matrix& whole) {
            return columns(whole, heads * d, shape.kv_columns());
        };
        EXPECT_TRUE(v(out).same_bits(v(qkv)));
        EXPECT_TRUE(v(dqkv).same_bits(v(dout)));
        EXPECT_TRUE(out.gaps_are_intact() && statistics.gaps_are_intact() &&
                    dqkv.gaps_are_intact());
    }
}

TEST_P(CudaHeadNorm, WeightGradientsSumOverTokensAndHeadsAndAccumulate) {
    const DType type = GetParam();
    Device device;
    for (const auto& [shape, gap] : kHeadNormCases) {
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
