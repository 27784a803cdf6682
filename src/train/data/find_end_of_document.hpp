// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// The token that ends documents: the format's, or, where the file lists its documents, the one
/// that is last in each of the first ones (of about a million tokens) and nowhere inside of them.
/// None if there is no such token.
[[nodiscard]] std::optional<int32_t> find_end_of_document(const TokenSource& source);

}  // namespace vocabpipe
