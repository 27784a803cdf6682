// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// The token that ends documents: the format's; or, if the file lists its documents, the token that
/// is last in each of the first documents (about a million tokens) and nowhere inside them. None if
/// there is no such token.
[[nodiscard]] std::optional<int32_t> find_end_of_document(const TokenSource& source);

}  // namespace vocabpipe
