// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/slice.hpp"
#include "vocabpipe/simulate.hpp"

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Costs of a world for the programs of one pipeline.
class SliceCosts final : public CostModel {
public:
    SliceCosts(const Lowered& world, const CostModel& costs) : mesh_(world.mesh), costs_(costs) {
        for (const Program& program : world.pipeline) {
            for (const Group& group : program.groups) {
                const auto [found, added] = slowest_.try_emplace(key(group));
                if (added) found->second = slowest_of(group);
            }
        }
    }

    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override {
        return costs_.pass_ns(rank * mesh_.slices(), pass);
    }
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override {
        return costs_.transfer_ns(what, slowest_.at(key(group)), bytes);
    }
    [[nodiscard]] int64_t local_ns(Do what, int64_t bytes) const override {
        return costs_.local_ns(what, bytes);
    }
    [[nodiscard]] int64_t overlap_slowdown_permille(int rank, const Pass& pass) const override {
        return costs_.overlap_slowdown_permille(rank * mesh_.slices(), pass);
    }
    [[nodiscard]] int64_t exchange_ns(int rank, const Pass& pass) const override {
        return costs_.exchange_ns(rank * mesh_.slices(), pass);
    }
    [[nodiscard]] StreamedShare streamed_share(int rank, const Pass& pass) const override {
        return costs_.streamed_share(rank * mesh_.slices(), pass);
    }
    [[nodiscard]] int64_t fixed_step_ns() const override { return costs_.fixed_step_ns(); }
    [[nodiscard]] MicrobatchLengths microbatch_lengths() const override {
        return costs_.microbatch_lengths();
    }
    [[nodiscard]] CommunicationOrder communication_order() const override {
        return costs_.communication_order();
    }

private:
    using Key = std::tuple<Axis, int, std::vector<int>>;
    static Key key(const Group& group) { return {group.axis, group.root, group.ranks}; }

    /// The ranks of the world of that group among all slices whose transfers take longest.
    [[nodiscard]] Group slowest_of(const Group& group) const {
        constexpr int64_t kMessage = 1 << 20;  // links differ in rate and latency alike
        Group slowest;
        int64_t longest = -1;
        for (int slice = 0; slice < mesh_.slices(); ++slice) {
            if (mesh_.slices_along(group.axis, slice).first != slice) continue;
            Group here = lowering::group_at(group, mesh_, mesh_.place(slice));
            const int64_t ns = costs_.transfer_ns(Do::all_gather, here, kMessage);
            if (ns <= longest) continue;
            longest = ns;
            slowest = std::move(here);
        }
        return slowest;
    }

    const Mesh mesh_;
    const CostModel& costs_;
    std::map<Key, Group> slowest_;
};

}  // namespace

Simulation simulate(const Lowered& world, const CostModel& costs, const SimulateOptions& options) {
    SimulateOptions of_slice = options;
    of_slice.copies *= world.mesh.slices();
    if (!options.persistent.empty()) {
        of_slice.persistent.clear();
        for (int k = 0; k < world.mesh.pipeline; ++k) {
            of_slice.persistent.push_back(
                options.persistent.at(static_cast<size_t>(k * world.mesh.slices())));
        }
    }
    return simulate(world.pipeline, SliceCosts(world, costs), of_slice);
}

}  // namespace vocabpipe
