// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <random>

#include "block.hpp"
#include "hooks.hpp"
#include "memory.hpp"
#include "stream.hpp"
#include "stream_queue.hpp"

namespace cuda_stand_in {

namespace {

bool supported(const cudaLaunchConfig_t& config) {
    for (unsigned int i = 0; i < config.numAttrs; ++i) {
        const cudaLaunchAttributeID id = config.attrs[i].id;
        if (id != cudaLaunchAttributeIgnore && id != cudaLaunchAttributePriority &&
            id != cudaLaunchAttributeProgrammaticStreamSerialization) {
            return false;
        }
    }
    return config.dynamicSmemBytes == 0;
}

bool in_limits(dim3 grid, dim3 block) {
    const auto within = [](unsigned int value, unsigned int most) {
        return value > 0 && value <= most;
    };
    return within(grid.x, 2147483647U) && within(grid.y, 65535) && within(grid.z, 65535) &&
           within(block.x, 1024) && within(block.y, 1024) && within(block.z, 64) &&
           block.x * block.y * block.z <= 1024;
}

void run_grid(const KernelCall& call, dim3 grid, dim3 block) {
    // Alternating directions by default; anything the seed says while delays are on.
    thread_local unsigned int launches = 0;
    BlockRunner::Order order{.backwards = ++launches % 2 == 0};
    std::minstd_rand random(static_cast<unsigned int>(delays().seed) + launches);
    const bool shuffled = delays().longest.count() > 0;
    BlockRunner& runner = BlockRunner::of_this_thread();
    for (unsigned int z = 0; z < grid.z; ++z) {
        for (unsigned int y = 0; y < grid.y; ++y) {
            for (unsigned int x = 0; x < grid.x; ++x) {
                if (shuffled) {
                    order.first_thread = static_cast<unsigned int>(random()) % 1024U;
                }
                order.backwards = !order.backwards;
                runner.run(call, grid, block, {x, y, z}, order);
            }
        }
    }
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, KernelCall call) {
    if (const cudaError_t error = enter("cudaLaunchKernelEx")) {
        return error;
    }
    if (!supported(config)) {
        return report(cudaErrorNotSupported);
    }
    if (call.kernel == nullptr) {
        return report(cudaErrorInvalidDeviceFunction);
    }
    if (!in_limits(config.gridDim, config.blockDim)) {
        return report(cudaErrorInvalidConfiguration);
    }
    if (device_of(config.stream) != current_device()) {
        return report(cudaErrorInvalidResourceHandle);
    }
    count(&Counters::kernel_launches);
    load_modules(current_device());
    return report(
        append(config.stream, [call = std::move(call), grid = config.gridDim,
                               block = config.blockDim] { run_grid(call, grid, block); }));
}

}  // namespace cuda_stand_in
