// SPDX-License-Identifier: Apache-2.0
#include "src/plan/step_costs.hpp"

#include "src/plan/kernel_rates.hpp"
#include "src/schedule/exchange_share.hpp"
#include "src/schedule/ops.hpp"
#include "vocabpipe/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace vocabpipe {

namespace {

constexpr double kSummed = 4;  // bytes of gradients in a program

/// Whether the action adds up or gathers parameters of replicas.
bool of_replicas(Do what, Axis axis) {
    const bool replicas =
        axis == Axis::data || axis == Axis::data_tensor || axis == Axis::expert_data;
    return replicas && (what == Do::all_to_all || what == Do::all_gather_v);
}

}  // namespace

StepCosts::StepCosts(const DeviceSpec& device, const PlannedTrainer& trainer)
    : links_(device),
      trainer_(trainer),
      local_bytes_per_ns_(device.memory_gb_per_s.value * device.elementwise_efficiency.value) {}

StepCosts::StepCosts(TableCosts links) : measured_(std::move(links)) {}

int64_t StepCosts::pass_ns(int rank, const Pass& pass) const {
    const TableCosts::OpCosts& costs = traits(pass.op).has_stage
                                           ? stage_ns[pass.stage]
                                           : rank_ns[static_cast<size_t>(rank / slices)];
    return lengths.pass_time(cost_in(costs, pass.op), pass);
}

int64_t StepCosts::exchange_ns(int rank, const Pass& pass) const {
    return exchange_share_ns(pass, pass_ns(rank, pass), exchange_permille);
}

int64_t StepCosts::transfer_ns(Do what, const Group& group, int64_t bytes) const {
    if (measured_) return measured_->transfer_ns(what, group, bytes);
    if (trainer_.free_vocabulary_collectives && is_of_pipeline(what, group)) return 0;
    if (trainer_.reduction == GradientReduction::ring && of_replicas(what, group.axis)) {
        return std::llround(replicas_ns(what, group, static_cast<double>(bytes)));
    }
    const ActionTraits& row = traits(what);
    const Link& link =
        what == Do::send ? links_->of_message(group.ranks) : links_->among(group.ranks);
    const auto members = static_cast<double>(group.ranks.size());
    auto latency = static_cast<double>(link.latency_ns);
    double sent = static_cast<double>(bytes);
    if (row.reaches_all) latency *= std::max(1.0, std::ceil(std::log2(members)));
    if (row.volume == Volume::per_peer) sent *= members - 1;
    if (row.volume == Volume::by_blocks) sent *= (members - 1) / members;
    return std::llround(latency + sent / link.bytes_per_ns);
}

bool StepCosts::overlaps_gradients() const {
    return measured_ || trainer_.reduction == GradientReduction::all_to_all ||
           kernel_rates(trainer_.kernels).overlaps_replicas;
}

double StepCosts::replicas_ns(Do what, const Group& group, double bytes) const {
    const bool sums = what == Do::all_to_all;
    // Passes of the next step begin while weights travel; those of ZeRO stage 3 wait for theirs.
    if (!sums && trainer_.zero < 3 && kernel_rates(trainer_.kernels).overlaps_replicas) return 0;
    const auto members = static_cast<double>(group.ranks.size());
    const double width = static_cast<double>(size_of(trainer_.gradients)) / kSummed;
    // A gather is given one rank's part.
    const double all = sums ? bytes * width : bytes * members;
    return links_->ring_ns(group.ranks, all);
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
