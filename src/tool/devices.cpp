// SPDX-License-Identifier: Apache-2.0
#include "src/tool/devices.hpp"

#include "vocabpipe/error.hpp"

#ifdef VOCABPIPE_WITH_CUDA
#include "vocabpipe/cuda/device.hpp"

#include <algorithm>
#endif

namespace vocabpipe::tool {

std::function<std::unique_ptr<Device>(const RankPlacement&)> device_factory(
    const std::string& device, bool ranks_are_threads) {
    if (device == "host") return {};
#ifdef VOCABPIPE_WITH_CUDA
    return [ranks_are_threads](const RankPlacement& place) {
        prepare_cuda(!ranks_are_threads && place.ranks > 1);
        const int shared = std::max(cuda_device_count(), 1);
        return ranks_are_threads ? make_cuda_device({.ordinal = place.local_rank % shared,
                                                     .transport = CudaTransport::copies})
                                 : make_cuda_device({.ordinal = place.local_rank});
    };
#else
    (void)ranks_are_threads;
    throw UsageError("--device " + device +
                     ": this build has no CUDA; configure with -DVOCABPIPE_ENABLE_CUDA=ON or use "
                     "--device host");
#endif
}

}  // namespace vocabpipe::tool
