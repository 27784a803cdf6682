// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/sharded_stages.hpp"

#include "src/schedule/lower/bucket_buffers.hpp"
#include "src/schedule/ops.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace vocabpipe::lowering {

namespace {

/// Passes of one stage between whose first and last its weights, or gradients, stay whole.
struct Use {
    int stage = 0;
    std::vector<uint32_t> passes;  ///< nodes, in order
};

/// The stages of one rank.
class ShardedStages {
public:
    ShardedStages(StepGraph& step, int rank)
        : step_(step), graph_(step.graph), buckets_(step, rank) {}

    std::vector<uint32_t> add() {
        gather();
        if (step_.backward) add_up();
        return buckets_.sums();
    }

private:
    [[nodiscard]] uint32_t node_of(const Pass& pass) const {
        return step_.passes.of_stage(pass.op, pass.stage, pass.microbatch);
    }

    /// The uses of passes that `uses` chooses, by their first pass.
    template <typename Uses>
    [[nodiscard]] std::vector<Use> uses_of(Uses&& uses) const {
        std::vector<Use> all;
        std::map<int, size_t> last;  // by stage: its use
        for (const Pass& pass : step_.schedule.passes[static_cast<size_t>(buckets_.rank())]) {
            if (!traits(pass.op).has_stage || !uses(pass_traits(pass.op))) continue;
            const auto known = last.find(pass.stage);
            const bool goes_on =
                known != last.end() && (step_.options.zero.reshard_after == ReshardAfter::step ||
                                        known->second + 1 == all.size());
            if (!goes_on) {
                last[pass.stage] = all.size();
                all.push_back({pass.stage, {}});
            }
            all[last[pass.stage]].passes.push_back(node_of(pass));
        }
        return all;
    }

    /// The buckets of a stage that ranks share in this way.
    [[nodiscard]] std::vector<uint16_t> shared(int stage, bool GradientBucket::*way) const {
        std::vector<uint16_t> found;
        for (uint16_t b = 0; b < buckets_.all().size(); ++b) {
            const GradientBucket& bucket = buckets_.all()[b];
            if (bucket.*way && bucket.stage == stage) found.push_back(b);
        }
        return found;
    }

    void gather() {
        const std::vector<Use> uses = uses_of([this](const PassTraits& pass) {
            return pass.reads_stage || (pass.op == Op::W && step_.sizes.weight_pass_reads_weights);
        });
        for (size_t i = 0; i < uses.size(); ++i) {
            std::vector<uint32_t> weights;
            for (const uint16_t b : shared(uses[i].stage, &GradientBucket::shards_weights)) {
                weights.push_back(gather(b, uses, i));
            }
            for (const uint32_t pass : uses[i].passes) graph_.append_operands(pass, weights);
        }
    }

    uint32_t gather(uint16_t b, const std::vector<Use>& uses, size_t use) {
        const auto [node, whole] = buckets_.add_gather(
            b, Purpose::stage_weights, Buffer::Space::arena, Buffer::Space::own_weights);
        graph_.add_edge(node, uses[use].passes.front());
        // What waits for its passes is limited by the uses before it.
        const auto ahead = static_cast<size_t>(step_.options.zero.gather_ahead) + 1;
        if (use >= ahead) {
            const std::vector<uint32_t>& before = uses[use - ahead].passes;
            const bool ends = step_.options.zero.reshard_after == ReshardAfter::use;
            graph_.add_edge(ends ? before.back() : before.front(), node);
        }
        return whole;
    }

    void add_up() {
        std::vector<Use> uses =
            uses_of([](const PassTraits& pass) { return pass.adds_to == AddsTo::stage; });
        // The first sums are those of the first complete gradients.
        std::ranges::stable_sort(uses, {}, [](const Use& use) { return use.passes.back(); });
        for (const Use& use : uses) {
            const std::vector<uint16_t> of_stage =
                shared(use.stage, &GradientBucket::shards_gradients);
            if (of_stage.empty()) continue;
            std::vector<uint32_t> gradients;
            for (const uint16_t b : of_stage) {
                gradients.push_back(buckets_.of_bucket(b, buckets_.all()[b].first.back() * 4,
                                                       Purpose::stage_gradients,
                                                       Buffer::Space::arena));
            }
            for (const uint32_t pass : use.passes) graph_.append_operands(pass, gradients);
            graph_.pass_part(use.passes.front()).accumulate = false;
            for (size_t i = 0; i < of_stage.size(); ++i) {
                std::vector<uint32_t>& before = sums_[of_stage[i]];
                before = buckets_.add_sum(
                    of_stage[i],
                    {.after = use.passes.back(), .whole = gradients[i], .before = before});
            }
        }
    }

    StepGraph& step_;
    Graph& graph_;
    BucketBuffers buckets_;
    std::map<uint16_t, std::vector<uint32_t>> sums_;  ///< of a bucket: its last
};

}  // namespace

std::vector<std::vector<uint32_t>> add_sharded_stages(StepGraph& step) {
    std::vector<std::vector<uint32_t>> sums(static_cast<size_t>(step.schedule.ranks));
    for (int rank = 0; rank < step.schedule.ranks && !step.sizes.buckets.empty(); ++rank) {
        sums[static_cast<size_t>(rank)] = ShardedStages(step, rank).add();
    }
    return sums;
}

}  // namespace vocabpipe::lowering
