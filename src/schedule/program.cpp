// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/program.hpp"

#include "src/schedule/ops.hpp"

#include <array>

namespace vocabpipe {

std::string_view to_string(Do what) {
    return traits(what).name;
}

std::string_view to_string(Lane lane) {
    constexpr std::array<std::string_view, kLanes> names{"compute", "forward", "backward",
                                                         "collective", "local"};
    return names[static_cast<size_t>(lane)];
}

std::string_view to_string(Purpose purpose) {
    constexpr std::array<std::string_view, kPurposes> names{
        "boundary", "activation", "vocabulary", "partial_sums",  "workspace",
        "report",   "tied",       "replicas",   "stage_weights", "stage_gradients"};
    return names[static_cast<size_t>(purpose)];
}

namespace {

std::string peer_in_name(NamedPeer peer, const Group& group) {
    switch (peer) {
        case NamedPeer::none:
            break;
        case NamedPeer::to_last:
            return " to rank " + std::to_string(group.ranks.back());
        case NamedPeer::from_first:
            return " from rank " + std::to_string(group.ranks.front());
        case NamedPeer::to_root:
            return " to rank " + std::to_string(group.root);
        case NamedPeer::from_root:
            return " from rank " + std::to_string(group.root);
    }
    return {};
}

}  // namespace

std::string Program::name_of(const Action& action) const {
    if (action.what == Do::pass) return to_string(passes[action.item]);
    const ActionTraits& row = traits(action.what);
    std::string name(row.name);
    name += peer_in_name(row.peer, groups[action.group]);
    for (const uint32_t operand : operands_of(action)) {
        if (operand == kNoBuffer || buffers[operand].purpose != Purpose::replicas) continue;
        const Buffer::Space space = buffers[operand].space;
        const bool weights =
            space == Buffer::Space::bucket_weights || space == Buffer::Space::own_weights;
        return name + (weights ? " weights" : " gradients") + " of bucket " +
               std::to_string(action.item) + " over the replicas";
    }
    if (action.lane == Lane::forward) name += " activation";
    if (action.lane == Lane::backward) name += " gradient";
    if (row.of_sum) {
        name += reductions[action.reduction].embeds ? " embedding" : " output-gradient";
    }
    return name + " of microbatch " + std::to_string(action.item);
}

}  // namespace vocabpipe
