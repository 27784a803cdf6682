// SPDX-License-Identifier: Apache-2.0
// The launch for the products of all experts as plain loops over what grouped_arrays.cu wrote:
// sizes, addresses and strides come from the device's memory, as for CUTLASS.
#include "kernels/cuda/grouped_gemm.hpp"

#include <cmath>

#include "kernels/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreadsOfGroup = 32;
constexpr int64_t kTileAlignment = 16;

__device__ bool suits_tiles(const void* data, int64_t stride, int64_t size) {
    return reinterpret_cast<uintptr_t>(data) % kTileAlignment == 0 &&
           stride * size % kTileAlignment == 0;
}

/// A block per expert. NaN where an operand does not suit CUTLASS's copies, or there are no terms:
/// its sums would begin with whatever registers hold.
template <typename D>
__global__ void grouped_gemm_kernel(GroupedArrays arrays, bool a_by_terms, bool b_by_terms,
                                    bool accumulate) {
    const int64_t e = blockIdx.x;
    const GroupSize size = arrays.sizes[e];
    if (size.m == 0 || size.n == 0) return;
    const auto* const a = static_cast<const __nv_bfloat16*>(arrays.a[e]);
    const auto* const b = static_cast<const __nv_bfloat16*>(arrays.b[e]);
    auto* const d = static_cast<D*>(arrays.d[e]);
    const int64_t a_stride = arrays.a_stride[e], b_stride = arrays.b_stride[e];
    const int64_t d_stride = arrays.d_stride[e];
    const bool right_for_cutlass = size.k > 0 && suits_tiles(a, a_stride, sizeof(*a)) &&
                                   suits_tiles(b, b_stride, sizeof(*b)) &&
                                   suits_tiles(d, d_stride, sizeof(D));
    for (int64_t at = threadIdx.x; at < int64_t{size.m} * size.n; at += kThreadsOfGroup) {
        const int64_t row = at / size.n, col = at % size.n;
        float sum = right_for_cutlass ? 0.0F : NAN;
        for (int64_t p = 0; p < size.k; ++p) {
            const float left = to_float(a_by_terms ? a[p * a_stride + row] : a[row * a_stride + p]);
            const float right =
                to_float(b_by_terms ? b[p * b_stride + col] : b[col * b_stride + p]);
            sum = fmaf(left, right, sum);
        }
        if (accumulate) sum += to_float(d[row * d_stride + col]);
        d[row * d_stride + col] = from_float<D>(sum);
    }
}

}  // namespace

bool grouped_gemm_runs_on(int capability) {
    return capability == 90;
}

/// Most tests are of the code without it, which most builds have.
bool grouped_gemm_runs_unasked() {
    return false;
}

int64_t grouped_gemm_workspace_bytes(GroupedProduct, int multiprocessors) {
    return 512 * int64_t{multiprocessors};
}

void grouped_gemm(CallSite ctx, GroupedProduct product, const GroupedArrays& arrays,
                  bool accumulate, int multiprocessors, std::span<std::byte> workspace) {
    const auto bytes = static_cast<size_t>(grouped_gemm_workspace_bytes(product, multiprocessors));
    require(workspace.size() >= bytes && reinterpret_cast<uintptr_t>(workspace.data()) % 256 == 0,
            "the workspace of a grouped launch");
    require(product == GroupedProduct::weight || !accumulate, "a sum of weight gradients");
    const auto run = [&]<typename D>(D*) {
        launch(ctx, grouped_gemm_kernel<D>, dim3(static_cast<unsigned>(arrays.experts)),
               dim3(kThreadsOfGroup), arrays, product == GroupedProduct::weight,
               product != GroupedProduct::forward, accumulate);
    };
    if (product == GroupedProduct::weight) {
        run(static_cast<float*>(nullptr));
    } else {
        run(static_cast<__nv_bfloat16*>(nullptr));
    }
}

}  // namespace vocabpipe::kernels::cuda
