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

    /// The slowest link among these ranks of the world.
    [[nodiscard]] const Link& among(std::span<const int> ranks) const;
    /// The link of an axis' groups: the slowest of all groups, because a step waits for each of
    /// them.
    [[nodiscard]] const Link& along(const Mesh& mesh, Axis axis) const {
        return spans_nodes(mesh, axis) ? between_ : inside_;
    }
    /// Whether any group of the axis has ranks on several nodes. For Axis::pipeline the groups are
    /// pairs of neighbours.
    [[nodiscard]] bool spans_nodes(const Mesh& mesh, Axis axis) const;

private:
    int gpus_per_node_ = 1;
    Link inside_, between_;
};

}  // namespace vocabpipe
