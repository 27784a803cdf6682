// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

// Calls of the system that network file systems answer in ways of their own.
namespace vocabpipe {

/// fsync(), again where a signal interrupted it. 0 or an errno.
[[nodiscard]] int sync_descriptor(int file);

/// rename(). 0 or an errno; 0 also where it has happened although the answer says otherwise: a
/// server that did it and whose answer was lost is asked again, and then finds no such file.
[[nodiscard]] int rename_file(const std::string& from, const std::string& to);

/// Whether nobody else has a lock on the file, which this open file has from now on.
enum class FileLock : uint8_t {
    held,
    of_another,   ///< which keeps it
    unsupported,  ///< the file system has no locks
};
/// flock(), exclusive and without waiting.
[[nodiscard]] FileLock lock_file(int file);

}  // namespace vocabpipe
