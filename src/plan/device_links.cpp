// SPDX-License-Identifier: Apache-2.0
#include "src/plan/device_links.hpp"

#include <algorithm>
#include <cmath>

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
    const double sent = bytes * (members - 1) / members;
    const double inside = sent / (inside_.bytes_per_ns * share);
    if (in_one_node(ranks)) return static_cast<double>(inside_.latency_ns) + inside;
    const int fewest = fewest_in_a_node(ranks);
    const double between = sent / (between_.bytes_per_ns * fewest);
    return static_cast<double>(between_.latency_ns) + std::max(fewest > 1 ? inside : 0, between);
}

int DeviceLinks::fewest_in_a_node(std::span<const int> ranks) const {
    auto fewest = static_cast<int>(ranks.size());
    int here = 0;
    for (size_t i = 0; i < ranks.size(); ++i) {
        ++here;
        const bool last = i + 1 == ranks.size();
        if (!last && ranks[i + 1] / gpus_per_node_ == ranks[i] / gpus_per_node_) continue;
        fewest = std::min(fewest, here);
        here = 0;
    }
    return fewest;
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
