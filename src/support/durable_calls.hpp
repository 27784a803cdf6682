// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

// System calls that behave differently on network file systems.
namespace vocabpipe {

/// fsync(), repeated if a signal interrupts it. Returns 0 or an errno.
[[nodiscard]] int sync_descriptor(int file);

/// rename(). Returns 0 or an errno; also 0 if a retry fails because the first attempt succeeded: a
/// server may rename the file and lose the answer, and then finds no such file when asked again.
[[nodiscard]] int rename_file(const std::string& from, const std::string& to);

/// Result of lock_file().
enum class FileLock : uint8_t {
    held,
    of_another,   ///< another process or descriptor holds it
    unsupported,  ///< the file system has no locks
};
/// Tries flock(), exclusive, without waiting.
[[nodiscard]] FileLock lock_file(int file);

}  // namespace vocabpipe
