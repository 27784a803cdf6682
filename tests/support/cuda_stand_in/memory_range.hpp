// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_stand_in {

/// A range of addresses.
struct Memory {
    uintptr_t low = 0;
    size_t bytes = 0;
    [[nodiscard]] bool has(uintptr_t address) const { return address - low < bytes; }
};

/// The program's thread-local variables, as the calling OS thread has them.
[[nodiscard]] Memory thread_local_variables();

}  // namespace cuda_stand_in
