// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <string>

namespace vocabpipe {

/// Rank 0 writes a file into `folder`, which is there, and the other ranks look for it. Throws
/// AgreedError, naming `flag`, where one does not find it: it has another folder of that name, on a
/// host of its own or below another working directory. Collective.
void check_shared_folder(Communicator& communicator, const std::string& flag,
                         const std::string& folder);

}  // namespace vocabpipe
