// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/pass.hpp"

namespace vocabpipe {

std::string to_string(const Pass& pass) {
    const OpTraits& t = traits(pass.op);
    std::string text;
    if (t.has_stage) text += std::to_string(pass.stage);
    text += t.name;
    if (!t.of_step) text += std::to_string(pass.microbatch);
    return text;
}

}  // namespace vocabpipe
