// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// Throws AgreedError with `code` on every rank if the lines of a rank are not those of rank 0,
/// naming the first one that differs, and `remedy`. Collective.
void check_same_on_every_rank(Communicator& communicator, const std::vector<std::string>& mine,
                              ExitCode code, const std::string& remedy);

}  // namespace vocabpipe
