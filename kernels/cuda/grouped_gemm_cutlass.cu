// SPDX-License-Identifier: Apache-2.0
// Grouped products by CUTLASS's kernels for compute capability 9.0: tiles copied by the tensor
// memory accelerator, products of warp groups, and persistent blocks that take one tile after
// another. One block computes a tile of d from the first term to the last, so an element's sum has
// one order, whatever other rows there are and however many multiprocessors share the work.
#include <bit>
#include <span>
#include <string>
#include <type_traits>

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/grouped_gemm.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

using Bf16 = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
using Sizes = cute::Shape<int, int, int>;

// No more than 128 rows: experts have few rows, and the padding of the last tile is computed in
// vain. Two warp groups take tiles in turn, so that one stores while the other multiplies. Two
// blocks that are neighbours along n share their reads of a.
using Tile = cute::Shape<cute::_128, cute::_128, cute::_64>;
using Cluster = cute::Shape<cute::_1, cute::_2, cute::_1>;
constexpr int kBlocksOfCluster = 2;
constexpr int kVectorBytes = 16;

// grouped_arrays.cu writes the layout that CUTLASS reads.
constexpr auto kSizesInMemory = std::bit_cast<GroupSize>(Sizes{1, 2, 3});
static_assert(kSizesInMemory.m == 1 && kSizesInMemory.n == 2 && kSizesInMemory.k == 3);

/// C is void where d is not read.
template <typename LayoutA, typename LayoutB, typename C, typename D>
struct Grouped {
    using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
        cutlass::epilogue::collective::EpilogueTileAuto, float, float, C, RowMajor*,
        kVectorBytes / sizeof(D), D, RowMajor*, kVectorBytes / sizeof(D),
        cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong>::CollectiveOp;
    using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Bf16, LayoutA*,
        kVectorBytes / sizeof(Bf16), Bf16, LayoutB*, kVectorBytes / sizeof(Bf16), float, Tile,
        Cluster,
        cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
            sizeof(typename Epilogue::SharedStorage))>,
        cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong>::CollectiveOp;
    using Kernel = cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<Sizes>,
                                                        Mainloop, Epilogue>;
    using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

    // A stride has one number that varies.
    static_assert(sizeof(typename Kernel::InternalStrideA) == sizeof(int64_t));
    static_assert(sizeof(typename Kernel::InternalStrideB) == sizeof(int64_t));
    static_assert(sizeof(typename Kernel::InternalStrideD) == sizeof(int64_t));
    static constexpr bool kReadsD = !std::is_void_v<C>;

    static typename Gemm::Arguments arguments(const GroupedArrays& arrays, bool accumulate,
                                              int multiprocessors) {
        typename Gemm::Arguments result{};
        result.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
        result.problem_shape = {arrays.experts, reinterpret_cast<Sizes*>(arrays.sizes), nullptr};
        result.mainloop = {reinterpret_cast<const Bf16**>(arrays.a),
                           reinterpret_cast<typename Kernel::StrideA>(arrays.a_stride),
                           reinterpret_cast<const Bf16**>(arrays.b),
                           reinterpret_cast<typename Kernel::StrideB>(arrays.b_stride)};
        result.epilogue.thread.alpha = 1.0F;
        result.epilogue.thread.beta = accumulate ? 1.0F : 0.0F;
        result.epilogue.ptr_D = reinterpret_cast<D**>(arrays.d);
        result.epilogue.dD = reinterpret_cast<typename Kernel::StrideD>(arrays.d_stride);
        if constexpr (kReadsD) {
            result.epilogue.ptr_C = const_cast<const C**>(reinterpret_cast<C**>(arrays.d));
            result.epilogue.dC = reinterpret_cast<typename Kernel::StrideC>(arrays.d_stride);
        }
        result.hw_info.sm_count = multiprocessors / kBlocksOfCluster * kBlocksOfCluster;
        return result;
    }
};

/// Calls function.template operator()<...>() with the kernel of a product.
template <typename Function>
auto with_kernel_of(GroupedProduct product, const Function& function) {
    switch (product) {
        case GroupedProduct::forward:
            return function.template operator()<Grouped<RowMajor, ColumnMajor, void, Bf16>>();
        case GroupedProduct::input:
            return function.template operator()<Grouped<RowMajor, RowMajor, void, Bf16>>();
        case GroupedProduct::weight:
            break;
    }
    return function.template operator()<Grouped<ColumnMajor, RowMajor, float, float>>();
}

void check_cutlass(cutlass::Status status, const char* call) {
    if (status == cutlass::Status::kSuccess) return;
    const cudaError_t error = cudaGetLastError();
    throw DeviceError(std::string(call) + " of CUTLASS: " + cutlassGetStatusString(status) +
                      (error == cudaSuccess ? "" : ", " + error_text(error)));
}

}  // namespace

bool grouped_gemm_runs_on(int capability) {
    return capability == 90;
}

bool grouped_gemm_runs_unasked() {
    return true;
}

int64_t grouped_gemm_workspace_bytes(GroupedProduct product, int multiprocessors) {
    return with_kernel_of(product, [&]<typename Kernel>() {
        return static_cast<int64_t>(
            Kernel::Gemm::get_workspace_size(Kernel::arguments({}, false, multiprocessors)));
    });
}

void grouped_gemm(CallSite ctx, GroupedProduct product, const GroupedArrays& arrays,
                  bool accumulate, int multiprocessors, std::span<std::byte> workspace) {
    with_kernel_of(product, [&]<typename Kernel>() {
        const auto arguments = Kernel::arguments(arrays, accumulate, multiprocessors);
        const cudaStream_t stream = ctx.cuda().stream();
        check_cutlass(Kernel::Gemm::can_implement(arguments), "can_implement");
        typename Kernel::Gemm gemm;
        check_cutlass(gemm.initialize(arguments, workspace.data(), stream), "initialize");
        check_cutlass(gemm.run(stream), "run");
    });
}

}  // namespace vocabpipe::kernels::cuda
