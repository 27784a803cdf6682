// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vocabpipe {

/// A regular expression as tokenizers read it (Oniguruma's syntax of Ruby) in the syntax of PCRE2,
/// for UTF and MULTILINE without UCP. Both libraries differ in what \s, \w, \h and scripts match,
/// in ^ and $, and in braces; those that mean the same are written so that they do. UsageError,
/// which says what of the pattern is not supported, for everything else.
[[nodiscard]] std::string pcre2_syntax(std::string_view pattern);

}  // namespace vocabpipe
