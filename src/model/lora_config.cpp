// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/lora_config.hpp"

#include <algorithm>

namespace vocabpipe {

bool LoraConfig::targets(std::string_view module) const {
    if (rank == 0) return false;
    return target_modules.empty() ||
           std::ranges::any_of(target_modules, [&](const std::string& target) {
               return module == target || module.ends_with("." + target);
           });
}

}  // namespace vocabpipe
