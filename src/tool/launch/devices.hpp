// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/rank_placement.hpp"
#include "src/train/options/gpu_options.hpp"
#include "vocabpipe/device.hpp"

#include <functional>
#include <memory>
#include <string>

namespace vocabpipe::tool {

/// Returns the function that makes the device of a rank, by --device; empty for the host. On GPUs,
/// a process uses the one with its number on the host; threads of a process share all. UsageError
/// in a build without CUDA.
[[nodiscard]] std::function<std::unique_ptr<Device>(const RankPlacement&)> device_factory(
    const std::string& device, bool ranks_are_threads, const GpuOptions& gpu = {});

}  // namespace vocabpipe::tool
