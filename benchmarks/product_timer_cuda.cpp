// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/device_timer.hpp"
#include "benchmarks/product_timer.hpp"
#include "kernels/cuda/gemm.hpp"
#include "vocabpipe/cuda/stream.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace vocabpipe::bench {

ProductTimer cuda_product_timer(Device& device) {
    auto context = std::make_shared<Context>(device.context(1, {}));
    return [context](ConstTensor a, bool transpose_a, ConstTensor b, bool transpose_b, Tensor c) {
        // Enqueued together: a product may take less time than its launch on the host, and in a
        // step launches run ahead, too.
        constexpr int kTogether = 10;
        constexpr int kRounds = 7;
        const cudaStream_t stream = cuda_stream(*context);
        DeviceTimer timer;
        std::vector<double> times;
        for (int round = 0; round <= kRounds; ++round) {
            timer.start(stream);
            for (int i = 0; i < kTogether; ++i) {
                kernels::cuda::gemm(*context, a, transpose_a, b, transpose_b, c, false);
            }
            timer.stop(stream);
            const double seconds = 1e-3 * timer.milliseconds() / kTogether;
            if (round > 0) times.push_back(seconds);  // the first round warms up
        }
        std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
        return times[kRounds / 2];
    };
}

}  // namespace vocabpipe::bench
