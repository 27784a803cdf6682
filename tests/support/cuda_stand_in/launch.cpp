// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "block.hpp"
#include "function_name.hpp"
#include "hooks.hpp"
#include "lost_context.hpp"
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

/// Visits 0 ... count - 1 once each, in an order that a few random numbers decide.
class Permutation {
public:
    Permutation(uint64_t count, std::minstd_rand& random) : count_(count) {
        step_ = random() % std::min<uint64_t>(count, 1U << 20U) + 1;
        while (std::gcd(step_, count) != 1) {
            --step_;
        }
        at_ = random() % count;
    }
    [[nodiscard]] uint64_t next() { return at_ = (at_ + step_) % count_; }

private:
    uint64_t count_;
    uint64_t step_;
    uint64_t at_;
};

/// Blocks in an order of every launch's own, threads alternately forwards and backwards and, while
/// delays are on, from anywhere.
void run_grid(const KernelCall& call, dim3 grid, dim3 block) {
    thread_local unsigned int launches = 0;
    BlockRunner::Order order{.backwards = ++launches % 2 == 0};
    std::minstd_rand random(static_cast<unsigned int>(delays().seed) + launches);
    const bool shuffled = delays().longest.count() > 0;
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    Permutation permutation(blocks, random);
    BlockRunner& runner = BlockRunner::of_this_thread();
    runner.begin_launch(blocks);
    for (uint64_t i = 0; i < blocks; ++i) {
        if (shuffled) {
            order.first_thread = static_cast<unsigned int>(random()) % 1024U;
        }
        order.backwards = !order.backwards;
        const uint64_t number = permutation.next();
        runner.run(call, grid, block,
                   {static_cast<unsigned int>(number % grid.x),
                    static_cast<unsigned int>(number / grid.x % grid.y),
                    static_cast<unsigned int>(number / grid.x / grid.y)},
                   order);
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
    return report(append(config.stream, [call = std::move(call), grid = config.gridDim,
                                         block = config.blockDim, device = current_device()] {
        if (awaits_failing_kernel() && fails(device, function_name(call.kernel))) return;
        run_grid(call, grid, block);
    }));
}

}  // namespace cuda_stand_in
