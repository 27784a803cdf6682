// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The bytes of a regular file. InputFileError "PATH: what is wrong; `remedy`" if it is missing,
/// cannot be read or has more than `most_bytes`, and for folders, pipes and devices, which may
/// never end.
[[nodiscard]] std::string read_whole_file(const std::string& path, std::string_view remedy,
                                          uint64_t most_bytes = uint64_t{1} << 30);

}  // namespace vocabpipe
