// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/parameter_group_flag.hpp"

#include "src/model/parameter_groups.hpp"
#include "src/support/joined.hpp"

#include <string>

namespace vocabpipe {

Flag parameter_group_flag(std::vector<ParameterGroup>& groups) {
    return {
        .names = "--param-group",
        .value = FlagText{.set =
                              [&groups](const std::vector<std::string>& words) {
                                  groups.clear();
                                  for (const std::string& text : words) {
                                      groups.push_back(parse_parameter_group(text));
                                  }
                              },
                          .get = [&groups] { return joined(groups, " ", &ParameterGroup::text); }},
        .help =
            "'PATTERN:weight_decay=X,lr_mult=Y': weight decay and learning-rate "
            "multiplier of the tensors whose names match PATTERN (wildcards * and ?); "
            "'PATTERN:freeze': they keep their values, without gradients and "
            "moments; may be repeated; the first match counts",
        .unit = "GROUP",
        .repeats = true};
}

}  // namespace vocabpipe
