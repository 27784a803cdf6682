// SPDX-License-Identifier: Apache-2.0
#include "src/plan/step_costs.hpp"

#include "src/schedule/ops.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace vocabpipe {

StepCosts::StepCosts(const DeviceSpec& device)
    : links_(device),
      local_bytes_per_ns_(device.memory_gb_per_s.value * device.elementwise_efficiency.value) {}

StepCosts::StepCosts(TableCosts links) : measured_(std::move(links)) {}

int64_t StepCosts::pass_ns(int rank, const Pass& pass) const {
    return cost_in(traits(pass.op).has_stage ? stage_ns[pass.stage]
                                             : rank_ns[static_cast<size_t>(rank / slices)],
                   pass.op);
}

int64_t StepCosts::transfer_ns(Do what, const Group& group, int64_t bytes) const {
    if (measured_) return measured_->transfer_ns(what, group, bytes);
    const ActionTraits& row = traits(what);
    const Link& link = links_->among(group.ranks);
    const auto members = static_cast<double>(group.ranks.size());
    auto latency = static_cast<double>(link.latency_ns);
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
    int64_t slowest = 0;
    for (int rank = 0; rank + 1 < ranks; ++rank) {
        slowest = std::max(
            slowest, transfer_ns(Do::send, {{rank * slices, (rank + 1) * slices}, -1}, bytes));
    }
    return slowest;
}

}  // namespace vocabpipe
