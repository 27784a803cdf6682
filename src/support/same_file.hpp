// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vocabpipe {

/// Whether two paths name the same file or folder, also through links. Paths that do not exist yet
/// are compared as text.
[[nodiscard]] bool same_file(const std::string& a, const std::string& b);

}  // namespace vocabpipe
