// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <string>

namespace vocabpipe {

/// Checks that all ranks share `folder`, which must exist: rank 0 writes a file and the others look
/// for it. AgreedError with `flag` if one does not find it, because its folder is on another host
/// or under another working directory. Collective.
void check_shared_folder(Communicator& communicator, const std::string& flag,
                         const std::string& folder);

}  // namespace vocabpipe
