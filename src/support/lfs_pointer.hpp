// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Whether an open file is the short text that a clone without Git LFS has in place of a large
/// file. Read as that file, it would look like damaged weights, or be trained on as text. `bytes`:
/// its size.
[[nodiscard]] bool is_lfs_pointer(int file, uint64_t bytes);

/// "PATH: is a Git LFS pointer; what to do".
[[nodiscard]] std::string lfs_pointer_message(const std::string& path);

}  // namespace vocabpipe
