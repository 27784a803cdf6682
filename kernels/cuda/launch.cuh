// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cuda/call_site.hpp"
#include "kernels/cuda/launch_errors.hpp"

namespace vocabpipe::kernels::cuda {

/// Blocks for `work` items of `per_block` each: at least one, and no more than a grid's first
/// dimension holds (kernels then stride).
[[nodiscard]] inline unsigned blocks_for(int64_t work, int64_t per_block) {
    return static_cast<unsigned>(
        std::clamp<int64_t>((work + per_block - 1) / per_block, 1, int64_t{0x7fffffff}));
}

/// Runs a kernel on the stream of the current lane. Throws DeviceError.
template <typename... Params, typename... Args>
void launch(CallSite at, void (*kernel)(Params...), dim3 grid, dim3 block, Args&&... args) {
    const KernelLaunch launched(at, reinterpret_cast<const void*>(kernel), grid, block);
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = at.cuda().stream();
    launched.check(
        cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...));
}

}  // namespace vocabpipe::kernels::cuda
