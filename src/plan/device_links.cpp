// SPDX-License-Identifier: Apache-2.0
#include "src/plan/device_links.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace vocabpipe {

DeviceLinks::DeviceLinks(const DeviceSpec& device)
    : gpus_per_node_(static_cast<int>(std::min(device.gpus_per_node.value, 1e6))),
      inside_{.bytes_per_ns = device.link_gb_per_s.value * device.link_efficiency.value,
              .latency_ns = std::llround(device.link_latency_us.value * 1e3)},
      message_inside_{.bytes_per_ns = device.link_gb_per_s.value * device.message_efficiency.value,
                      .latency_ns = inside_.latency_ns},
      between_{.bytes_per_ns = device.network_gb_per_s.value * device.network_efficiency.value,
               .latency_ns = std::llround(device.network_latency_us.value * 1e3)} {}

bool DeviceLinks::in_one_node(std::span<const int> ranks) const {
    const auto [first, last] = std::minmax_element(ranks.begin(), ranks.end());
    return *first / gpus_per_node_ == *last / gpus_per_node_;
}

double DeviceLinks::ring_ns(std::span<const int> ranks, double bytes, double share) const {
    const auto members = static_cast<double>(ranks.size());
    std::map<int, int> in_node;
    for (const int rank : ranks) ++in_node[rank / gpus_per_node_];
    const int fewest =
        std::min_element(in_node.begin(), in_node.end(), [](const auto& a, const auto& b) {
            return a.second < b.second;
        })->second;
    const double sent = bytes * (members - 1) / members;
    const double inside = sent / (inside_.bytes_per_ns * share);
    if (in_node.size() == 1) return static_cast<double>(inside_.latency_ns) + inside;
    const double between = sent / (between_.bytes_per_ns * fewest);
    return static_cast<double>(between_.latency_ns) + std::max(fewest > 1 ? inside : 0, between);
}

bool DeviceLinks::spans_nodes(const Mesh& mesh, Axis axis) const {
    if (mesh.size() <= gpus_per_node_) return false;
    const auto node = [&](int rank) { return rank / gpus_per_node_; };
    const int next = axis == Axis::pipeline ? mesh.slices() : 0;
    for (int rank = 0; rank + next < mesh.size(); ++rank) {
        if (next > 0 && node(rank) != node(rank + next)) return true;
        const int slice = rank % mesh.slices();
        const Mesh::Slices of = mesh.slices_along(axis, slice);
        const int base = rank - slice;
        if (node(base + of[0]) != node(base + of[of.count - 1])) return true;
        if (axis != Axis::pipeline && spans_pipeline(axis) && mesh.pipeline > 1) return true;
    }
    return false;
}

}  // namespace vocabpipe
