// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// AgreedError with `code` on every rank if a rank's lines differ from those of rank 0; it has the
/// first such line and `remedy`. Collective.
void check_same_on_every_rank(Communicator& communicator, const std::vector<std::string>& mine,
                              ExitCode code, const std::string& remedy);

}  // namespace vocabpipe
