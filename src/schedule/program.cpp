// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/program.hpp"

#include <array>

namespace vocabpipe {

std::string_view to_string(Do what) {
    constexpr std::array<std::string_view, 11> names{
        "pass",   "send",         "receive",         "broadcast",   "all_gather", "all_to_all",
        "gather", "all_gather_v", "combine_softmax", "ordered_sum", "reduce"};
    return names[static_cast<size_t>(what)];
}

std::string_view to_string(Lane lane) {
    constexpr std::array<std::string_view, kLanes> names{"compute", "forward", "backward",
                                                         "collective", "local"};
    return names[static_cast<size_t>(lane)];
}

std::string_view to_string(Purpose purpose) {
    constexpr std::array<std::string_view, kPurposes> names{
        "boundary",  "activation", "vocabulary", "partial_sums",
        "workspace", "report",     "tied",       "replicas"};
    return names[static_cast<size_t>(purpose)];
}

std::string Program::name_of(const Action& action) const {
    if (action.what == Do::pass) return to_string(passes[action.item]);
    std::string name(to_string(action.what));
    const Group& group = groups[action.group];
    if (action.what == Do::send) {
        name += " to rank " + std::to_string(group.ranks.back());
    } else if (action.what == Do::receive) {
        name += " from rank " + std::to_string(group.ranks.front());
    } else if (action.what == Do::broadcast) {
        name += " from rank " + std::to_string(group.root);
    } else if (action.what == Do::gather || action.what == Do::reduce) {
        name += " to rank " + std::to_string(group.root);
    }
    if (!operands_of(action).empty()) {
        for (const uint32_t operand : operands_of(action)) {
            if (operand == kNoBuffer || buffers[operand].purpose != Purpose::replicas) continue;
            const bool weights = action.what == Do::all_gather_v;
            return name + (weights ? " weights" : " gradients") + " of bucket " +
                   std::to_string(action.item) + " over the replicas";
        }
    }
    if (action.lane == Lane::forward) name += " activation";
    if (action.lane == Lane::backward) name += " gradient";
    if (action.what == Do::all_to_all || action.what == Do::ordered_sum ||
        action.what == Do::gather || action.what == Do::reduce) {
        name += action.reduction == kInputReduction ? " embedding" : " output-gradient";
    }
    return name + " of microbatch " + std::to_string(action.item);
}

}  // namespace vocabpipe
