// SPDX-License-Identifier: Apache-2.0
#include "src/plan/step_costs.hpp"

#include "src/schedule/ops.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace vocabpipe {

StepCosts::StepCosts(const DeviceSpec& device)
    : gpus_per_node_(static_cast<int>(std::min(device.gpus_per_node.value, 1e6))),
      inside_{device.link_latency_us.value * 1e3,
              device.link_gb_per_s.value * device.link_efficiency.value},
      between_{device.network_latency_us.value * 1e3,
               device.network_gb_per_s.value * device.network_efficiency.value},
      local_bytes_per_ns_(device.memory_gb_per_s.value * device.elementwise_efficiency.value) {}

StepCosts::StepCosts(TableCosts links) : measured_(std::move(links)) {}

int64_t StepCosts::pass_ns(int rank, const Pass& pass) const {
    return cost_in(
        traits(pass.op).has_stage ? stage_ns[pass.stage] : rank_ns[static_cast<size_t>(rank)],
        pass.op);
}

int64_t StepCosts::transfer_ns(Do what, const Group& group, int64_t bytes) const {
    if (measured_) return measured_->transfer_ns(what, group, bytes);
    const auto [first, last] = std::minmax_element(group.ranks.begin(), group.ranks.end());
    const ActionTraits& row = traits(what);
    const Link& link = *first / gpus_per_node_ == *last / gpus_per_node_ ? inside_ : between_;
    const auto members = static_cast<double>(group.ranks.size());
    double latency = link.latency_ns;
    double sent = static_cast<double>(bytes);
    if (row.reaches_all) latency *= std::max(1.0, std::ceil(std::log2(members)));
    if (row.volume == Volume::per_peer) sent *= members - 1;
    if (row.volume == Volume::by_blocks) sent *= (members - 1) / members;
    return std::llround(latency + sent / link.bytes_per_ns);
}

int64_t StepCosts::local_ns(Do what, int64_t bytes) const {
    if (measured_) return measured_->local_ns(what, bytes);
    return std::llround(static_cast<double>(bytes) / local_bytes_per_ns_);
}

int64_t StepCosts::slowest_hop_ns(int ranks, int64_t bytes) const {
    if (ranks < 2) return 0;
    const int rank = ranks > gpus_per_node_ ? gpus_per_node_ : 1;
    return transfer_ns(Do::send, {{rank - 1, rank}, -1}, bytes);
}

}  // namespace vocabpipe
