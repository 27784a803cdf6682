// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe {

/// The same file or folder however it is spelt, through links as well; of what is not there yet,
/// the same name.
[[nodiscard]] bool same_file(const std::string& a, const std::string& b);

}  // namespace vocabpipe
