// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::cuda {

void set_zero(Context& ctx, std::span<std::byte> bytes);

/// Equally long, not overlapping, both on this device.
void copy(Context& ctx, std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace vocabpipe::kernels::cuda
