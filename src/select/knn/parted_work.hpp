// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/knn/find_nearest.hpp"
#include "vocabpipe/world.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace vocabpipe {

/// Work of all ranks in parts that they begin together, so that none waits long, and all end
/// together if one was told to.
class PartedWork {
public:
    /// `total`: of run()'s `most`, for progress. `seconds`: grows by the time of this rank's work.
    PartedWork(Communicator& world, const KnnOptions& options, const char* phase, int64_t total,
               double& seconds)
        : world_(world), options_(options), phase_(phase), total_(total), seconds_(seconds) {}

    /// Calls `work(begin, end)` for parts of `at_once` of this rank's `count`. `most`: the largest
    /// count of a rank. False: end. Collective; what `work` throws is thrown on every rank.
    template <typename Work>
    [[nodiscard]] bool run(int64_t count, int64_t most, int64_t at_once, const Work& work) {
        for (int64_t begin = 0; begin < most; begin += at_once) {
            if (options_.ends(world_)) return false;
            world_.agree([&] {
                if (begin >= count) return;
                const auto begun = std::chrono::steady_clock::now();
                work(begin, std::min(begin + at_once, count));
                seconds_ +=
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
            });
            done_ += std::min(at_once, most - begin);
            options_.report(phase_, done_, total_);
        }
        return true;
    }

private:
    Communicator& world_;
    const KnnOptions& options_;
    const char* phase_;
    int64_t total_, done_ = 0;
    double& seconds_;
};

}  // namespace vocabpipe
