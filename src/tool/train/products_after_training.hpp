// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/gpu_options.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/world.hpp"

#include <functional>
#include <string>

namespace vocabpipe::tool {

/// What a training on `device` does with its matrix products after the last step; empty on the
/// host. It writes the results of time_products() to `time_products`, if that is not empty. Without
/// --product-choices it returns a line that offers the file in the user's cache folder, if there is
/// one; that file is never used by itself, as bits depend on it. UsageError for `time_products` on
/// the host.
[[nodiscard]] std::function<std::string(Communicator&, Device&)> products_after_training(
    const std::string& device, const std::string& time_products, const GpuOptions& gpu);

}  // namespace vocabpipe::tool
