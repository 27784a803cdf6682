// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/zero_options.hpp"

#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

std::string_view to_string(ReshardAfter after) {
    return after == ReshardAfter::use ? "use" : "step";
}

ReshardAfter reshard_after_from(std::string_view name) {
    for (const ReshardAfter after : {ReshardAfter::use, ReshardAfter::step}) {
        if (name == to_string(after)) return after;
    }
    throw UsageError("--reshard-after " + std::string(name) + ": must be use or step");
}

}  // namespace vocabpipe
