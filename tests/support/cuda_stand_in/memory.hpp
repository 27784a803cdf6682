// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace cuda_stand_in {

/// Whether [address, address + bytes) lies in one allocation of a device.
[[nodiscard]] bool is_device_memory(const void* address, size_t bytes);
/// Whether address points into an allocation of any device.
[[nodiscard]] bool points_to_device(const void* address);

/// What the device's memory lacks: context, modules, pages.
[[nodiscard]] size_t memory_taken(int device);
/// The device's modules are loaded from now on.
void load_modules(int device);

void reset_memory_peak();

}  // namespace cuda_stand_in
