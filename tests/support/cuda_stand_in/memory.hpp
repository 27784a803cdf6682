// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace cuda_stand_in {

/// Whether [address, address + bytes) lies in one allocation of a device.
[[nodiscard]] bool is_device_memory(const void* address, size_t bytes);
/// Whether address points into an allocation of any device.
[[nodiscard]] bool points_to_device(const void* address);

void reset_memory_peak();

}  // namespace cuda_stand_in
