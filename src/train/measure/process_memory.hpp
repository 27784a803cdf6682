// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Of this process, in bytes, from /proc.
struct ProcessMemory {
    int64_t resident = 0;  ///< now
    int64_t peak = 0;      ///< largest so far
};
[[nodiscard]] ProcessMemory process_memory();

/// Memory of this machine that could be taken without swapping, in bytes; the smaller of
/// MemAvailable and what the process's cgroup still allows.
[[nodiscard]] int64_t available_memory();

/// What a cgroup with these files still allows, in bytes, when it gives up its pages of files; -1
/// where it has no limit.
[[nodiscard]] int64_t left_in_cgroup(const std::string& folder);

}  // namespace vocabpipe
