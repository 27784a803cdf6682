// SPDX-License-Identifier: Apache-2.0
// The links between the ranks of a mesh: one class of link per axis.
#pragma once

#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/overlap.hpp"

#include <span>

namespace vocabpipe {

/// The two kinds of links of a cluster. Rank r is device r mod gpus_per_node of node
/// r / gpus_per_node, as mpirun places ranks.
class DeviceLinks {
public:
    explicit DeviceLinks(const DeviceSpec& device);

    /// The slowest link among these ranks of the world, for collectives.
    [[nodiscard]] const Link& among(std::span<const int> ranks) const {
        return in_one_node(ranks) ? inside_ : between_;
    }
    /// The link of a message between two ranks.
    [[nodiscard]] const Link& of_message(std::span<const int> ranks) const {
        return in_one_node(ranks) ? message_inside_ : between_;
    }
    /// The link of an axis' groups: the slowest of all groups, because a step waits for each of
    /// them.
    [[nodiscard]] const Link& along(const Mesh& mesh, Axis axis) const {
        return spans_nodes(mesh, axis) ? between_ : inside_;
    }
    /// Nanoseconds in which NCCL's rings gather `bytes` in all from these ranks, which ascend, or
    /// add up as many of each and leave everyone a part. In every node as many adapters send as the
    /// group has ranks there. `share`: of link_efficiency.
    [[nodiscard]] double ring_ns(std::span<const int> ranks, double bytes, double share = 1) const;
    /// Whether any group of the axis has ranks on several nodes. For Axis::pipeline the groups are
    /// pairs of neighbours.
    [[nodiscard]] bool spans_nodes(const Mesh& mesh, Axis axis) const;

private:
    [[nodiscard]] bool in_one_node(std::span<const int> ranks) const;
    /// Ranks of the node that has fewest of these, which ascend.
    [[nodiscard]] int fewest_in_a_node(std::span<const int> ranks) const;

    int gpus_per_node_ = 1;
    Link inside_, message_inside_, between_;
};

}  // namespace vocabpipe
