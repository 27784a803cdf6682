// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/device_links.hpp"
#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/planned_trainer.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace vocabpipe {

/// Costs of one candidate's step on a device: passes from tables, transfers by the links between
/// the participating ranks.
class StepCosts final : public CostModel {
public:
    StepCosts(const DeviceSpec& device, const PlannedTrainer& trainer);
    /// Links as measured: latency and rates of `links`, between any ranks.
    explicit StepCosts(TableCosts links);

    std::vector<TableCosts::OpCosts> stage_ns;  ///< [stage][op]: F, B, I, W, R
    /// [pipeline rank][op]: E, G, S, T, Reduce, Report, Update
    std::vector<TableCosts::OpCosts> rank_ns;
    MicrobatchLengths lengths;      ///< the tables are those of the longest
    int64_t exchange_permille = 0;  ///< share of F, B and I for exchange_ns(), in thousandths
    int slices = 1;                 ///< Mesh::slices(): ranks of the world per row of the tables

    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override;
    /// Latency and bytes over bandwidth: broadcasts are pipelined along a ring, so the message
    /// crosses every link once; gathers and exchanges send what the busiest rank sends or receives.
    /// A group that spans nodes has the speed of one network adapter per rank. What replicas
    /// exchange goes as PlannedTrainer::exchange says, in the trainer's type of gradients.
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override;
    [[nodiscard]] int64_t local_ns(Do what, int64_t bytes) const override;
    [[nodiscard]] int64_t overlap_slowdown_permille(int rank, const Pass& pass) const override {
        return measured_ ? measured_->overlap_slowdown_permille(rank, pass) : 0;
    }
    [[nodiscard]] int64_t exchange_ns(int rank, const Pass& pass) const override;
    [[nodiscard]] MicrobatchLengths microbatch_lengths() const override { return lengths; }
    [[nodiscard]] int64_t fixed_step_ns() const override {
        return measured_ ? measured_->fixed_step_ns() : 0;
    }
    /// The order of the profile, if any. Built-in devices use `lanes`, like the published runs that
    /// they were compared with.
    [[nodiscard]] CommunicationOrder communication_order() const override {
        return measured_ ? measured_->communication_order() : CommunicationOrder::lanes;
    }
    /// Whether costs are a profile that was measured on hosts: those of GPUs say `streams` or
    /// `launches`.
    [[nodiscard]] bool measured_on_hosts() const {
        return measured_ && communication_order() == CommunicationOrder::lanes;
    }

    /// Whether replicas add up gradients while passes go on, else after the last one of a rank.
    [[nodiscard]] bool overlaps_gradients() const;

    /// A message between neighbours of a pipeline: the slowest hop among `ranks` consecutive ranks.
    [[nodiscard]] int64_t slowest_hop_ns(int ranks, int64_t bytes) const;

private:
    [[nodiscard]] double replicas_ns(Do what, const Group& group, double bytes) const;

    std::optional<DeviceLinks> links_;  ///< of a device
    PlannedTrainer trainer_;            ///< on a device
    double local_bytes_per_ns_ = 1;
    std::optional<TableCosts> measured_;
};

/// The same costs indexed by pipeline rank: those of the first slice.
class PipelineCosts final : public CostModel {
public:
    /// `costs` must outlive it.
    explicit PipelineCosts(const StepCosts& costs) : costs_(costs) {}

    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override {
        return costs_.pass_ns(rank * costs_.slices, pass);
    }
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override {
        Group of_world = group;
        for (int& rank : of_world.ranks) rank *= costs_.slices;
        return costs_.transfer_ns(what, of_world, bytes);
    }
    [[nodiscard]] int64_t local_ns(Do what, int64_t bytes) const override {
        return costs_.local_ns(what, bytes);
    }

private:
    const StepCosts& costs_;
};

}  // namespace vocabpipe
