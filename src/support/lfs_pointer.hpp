// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Whether an open file is the few lines of text that a clone without Git LFS has in place of a
/// large file. Taken for the file itself, it would be damaged weights, or a text to train on.
/// `bytes`: its size.
[[nodiscard]] bool is_lfs_pointer(int file, uint64_t bytes);

/// "PATH: is a Git LFS pointer; what to do".
[[nodiscard]] std::string lfs_pointer_message(const std::string& path);

}  // namespace vocabpipe
