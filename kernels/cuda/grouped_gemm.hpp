// SPDX-License-Identifier: Apache-2.0
// One launch for the products of all experts: by CUTLASS (grouped_gemm_cutlass.cu), or by the
// tests' substitute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/call_site.hpp"
#include "kernels/cuda/grouped_arrays.hpp"

namespace vocabpipe::kernels::cuda {

/// Layouts of the matrices. All are row-major; each begins at a multiple of 16 bytes, with a
/// multiple of 16 bytes between rows.
enum class GroupedProduct : uint8_t {
    forward,  ///< d (m, n) bf16 = a (m, k) b (n, k)^T
    input,    ///< d (m, n) bf16 = a (m, k) b (k, n)
    weight,   ///< d (m, n) fp32 = a (k, m)^T b (k, n) [+ d]
};

/// Whether a GPU of this compute capability (90: 9.0) can run it.
[[nodiscard]] bool grouped_gemm_runs_on(int capability);
/// The default where Engine::group_experts() has not been called.
[[nodiscard]] bool grouped_gemm_runs_unasked();

/// Bytes of workspace, aligned to 256, for a launch on this many multiprocessors.
[[nodiscard]] int64_t grouped_gemm_workspace_bytes(GroupedProduct product, int multiprocessors);

/// Enqueues the products that `arrays` describe; `accumulate` is for weight only. Sums are in fp32,
/// k ascending in steps that do not depend on sizes, never split. Throws DeviceError.
void grouped_gemm(CallSite ctx, GroupedProduct product, const GroupedArrays& arrays,
                  bool accumulate, int multiprocessors, std::span<std::byte> workspace);

}  // namespace vocabpipe::kernels::cuda
