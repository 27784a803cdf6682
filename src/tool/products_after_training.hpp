// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/gpu_options.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/world.hpp"

#include <functional>
#include <string>

namespace vocabpipe::tool {

/// What a training on `device` does about its matrix products after the last step; empty on the
/// host. It writes what time_products() finds to `time_products`, if that is not empty. A run
/// without --product-choices returns a line that offers the file of the user's cache folder, where
/// there is one: never used by itself, as bits depend on it. Throws UsageError for `time_products`
/// on the host.
[[nodiscard]] std::function<std::string(Communicator&, Device&)> products_after_training(
    const std::string& device, const std::string& time_products, const GpuOptions& gpu);

}  // namespace vocabpipe::tool
