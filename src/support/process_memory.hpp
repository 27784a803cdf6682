// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe {

/// Memory of this process in bytes, from /proc.
struct ProcessMemory {
    int64_t resident = 0;  ///< now
    int64_t peak = 0;      ///< largest so far
};
[[nodiscard]] ProcessMemory process_memory();

/// Memory of this machine that can be allocated without swapping, in bytes: the smaller of
/// MemAvailable and what the process's control groups still allow.
[[nodiscard]] int64_t available_memory();

}  // namespace vocabpipe
