// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/timeline.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Costs of a run, equal on every rank. Links are not in them (measure_links.hpp).
struct MeasuredCosts {
    /// How long passes took, from begin to end, without local actions that ran inside and waits for
    /// rows: what predicts this machine as it is, with as many ranks per core as there were.
    /// fixed_ns is what a step takes besides its program, loading the batch mostly: the slowest
    /// rank's median.
    TableCosts wall;
    /// CPU time of the rank's thread: what a pass would take on a core of its own. Only with one
    /// thread per rank; equal to `wall` otherwise.
    TableCosts cpu;
    int64_t median_step_ns = 0;  ///< of rank 0, over the same steps
};

/// Costs of one executed step as they were, pass by pass: what simulate() makes of them differs
/// from the step by what the simulator leaves out, not by how passes vary. `spans` are those of all
/// ranks; communication, and passes that did not run, cost what `table` says, which must outlive
/// this.
class ReplayCosts final : public CostModel {
public:
    ReplayCosts(const Timeline& executed, const std::vector<Program>& programs,
                const TableCosts& table);
    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override;
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override {
        return table_.transfer_ns(what, group, bytes);
    }
    [[nodiscard]] int64_t local_ns(Do what, int64_t bytes) const override {
        return table_.local_ns(what, bytes);
    }
    [[nodiscard]] CommunicationOrder communication_order() const override {
        return table_.communication_order();
    }

private:
    const TableCosts& table_;
    std::map<std::tuple<int, Op, uint16_t, uint32_t>, int64_t> ns_;  ///< rank, op, stage, mb
};

/// Durations of one rank's passes, step by step. The first step, in which kernels are compiled,
/// counts only as long as it is the only one. Of the others the last 64 count, so that a long run
/// needs no more memory than a short one; per kind of pass and stage, the mean within a step and
/// the median over steps.
class PassMeter {
public:
    /// `mine`: this rank's spans of the step. `duration_ns`: of the whole step, program and all.
    void add_step(const Timeline& mine, const Program& program, int64_t duration_ns);

    /// Steps have another size from now on: of those before it only the passes count.
    void forget_durations();

    /// Of the first replica's ranks. Costs that none of them saw are 0. Collective.
    [[nodiscard]] MeasuredCosts gather(Communicator& communicator, Mesh mesh, int stages,
                                       bool cpu_time) const;

private:
    static constexpr size_t kWindow = 64;
    struct Sample {
        int64_t wall = 0;
        int64_t cpu = 0;
    };
    using Key = std::pair<Op, uint16_t>;  ///< stage 0 where the kind of pass has none

    size_t steps_ = 0;  ///< added, the first one included
    std::map<Key, std::vector<Sample>> passes_;
    std::vector<int64_t> durations_, fixed_;
    Sample local_;  ///< local actions, all steps
    int64_t local_bytes_ = 0;
};

/// Fills in what a schedule did not show: B = I + W where backwards were split, I = W = B / 2 where
/// they were not. Returns the kinds of pass for which any stage got such a cost. No cost of a
/// transformer pass is 0 afterwards.
std::vector<Op> derive_missing(TableCosts& costs);

}  // namespace vocabpipe
