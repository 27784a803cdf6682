// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vocabpipe {

/// Appends the files that match a shell pattern (*, ?, [...]), sorted. Appends `pattern` itself if
/// it is no pattern or names a file that exists. InputFileError if no file matches.
void append_matching_files(const std::string& pattern, std::vector<std::string>& files);

}  // namespace vocabpipe
