// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// Opens PREFIX.idx and PREFIX.bin, Megatron's indexed dataset. All header fields, offsets,
/// document boundaries and both file lengths are checked; InputFileError names the file, the field,
/// its value and what it should be. Reads the whole .idx once.
[[nodiscard]] std::unique_ptr<TokenSource> open_megatron(const std::string& prefix);

}  // namespace vocabpipe
