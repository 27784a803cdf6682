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
    /// Durations of passes from begin to end, without the local actions that ran inside and without
    /// waits for rows: predicts this machine with its number of ranks per core. fixed_ns is the
    /// time of a step outside its program, mostly loading the batch: the slowest rank's median.
    TableCosts wall;
    /// CPU time of the rank's thread: the duration of a pass on a core of its own. Measured only
    /// with one thread per rank; otherwise equal to `wall`.
    TableCosts cpu;
    int64_t median_step_ns = 0;  ///< of rank 0, over the same steps
};

/// The costs of one executed step, pass by pass: simulate() then differs from the step only by what
/// the simulator leaves out, not by how passes vary. `spans` are those of all ranks; communication,
/// and passes that did not run, cost what `table` says, which must outlive this.
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

/// Durations of one rank's passes, step by step. The first step, which compiles kernels, counts
/// only as long as it is the only one. Of the others the last 64 count, so that memory does not
/// grow with the run. A cost is the mean within a step and the median over steps, per kind of pass
/// and stage.
class PassMeter {
public:
    /// `mine`: this rank's spans of the step. `duration_ns`: of the whole step, with the time
    /// outside its program.
    void add_step(const Timeline& mine, const Program& program, int64_t duration_ns);

    /// Call when the size of steps changes: earlier steps then count only for passes.
    void forget_durations();

    /// Costs over the first replica's ranks; 0 for costs that none of them saw. Collective.
    [[nodiscard]] MeasuredCosts gather(Communicator& communicator, Mesh mesh, int stages,
                                       bool cpu_time) const;

private:
    static constexpr size_t kWindow = 64;
    struct Sample {
        int64_t wall = 0;
        int64_t cpu = 0;
    };
    using Key = std::pair<Op, uint16_t>;  ///< stage 0 if the kind of pass has no stage

    size_t steps_ = 0;  ///< added, the first one included
    std::map<Key, std::vector<Sample>> passes_;
    std::vector<int64_t> durations_, fixed_;
    Sample local_;  ///< local actions, all steps
    int64_t local_bytes_ = 0;
};

/// Derives the costs that a schedule did not show: B = I + W if backwards were split, I = W = B / 2
/// if not; I = B where W has nothing to do, because `trained` (TrainedParts::stages; empty: all
/// are) says that the stage is frozen. Returns the kinds of pass for which a stage got such a cost.
/// Afterwards no transformer pass costs 0.
std::vector<Op> derive_missing(TableCosts& costs, const std::vector<bool>& trained = {});

}  // namespace vocabpipe
