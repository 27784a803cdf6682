// SPDX-License-Identifier: Apache-2.0
#include "src/tool/launch/devices.hpp"

#include "vocabpipe/error.hpp"

#ifdef VOCABPIPE_WITH_CUDA
#include "vocabpipe/cuda/device.hpp"

#include <algorithm>
#endif

namespace vocabpipe::tool {

std::function<std::unique_ptr<Device>(const RankPlacement&)> device_factory(
    const std::string& device, bool ranks_are_threads, [[maybe_unused]] const GpuOptions& gpu) {
    if (device == "host") return {};
#ifdef VOCABPIPE_WITH_CUDA
    return [ranks_are_threads, gpu](const RankPlacement& place) {
        prepare_cuda(!ranks_are_threads && place.ranks > 1);
        const int shared = std::max(cuda_device_count(), 1);
        CudaDeviceOptions options{.ordinal = place.local_rank,
                                  .left_multiprocessors = gpu.left_multiprocessors,
                                  .product_choices = gpu.product_choices,
                                  .nondeterministic_attention = gpu.nondeterministic_attention};
        if (ranks_are_threads) {
            options.ordinal %= shared;
            options.transport = CudaTransport::copies;
        }
        return make_cuda_device(options);
    };
#else
    (void)ranks_are_threads;
    throw UsageError("--device " + device +
                     ": this build has no CUDA; configure with -DVOCABPIPE_ENABLE_CUDA=ON or use "
                     "--device host");
#endif
}

}  // namespace vocabpipe::tool
