// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/with_recomputation.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace vocabpipe {

bool has_recomputation(const Schedule& schedule) {
    return std::any_of(schedule.passes.begin(), schedule.passes.end(), [](const auto& list) {
        return std::any_of(list.begin(), list.end(),
                           [](const Pass& pass) { return pass.op == Op::R; });
    });
}

Schedule with_recomputation(Schedule schedule) {
    for (std::vector<Pass>& list : schedule.passes) {
        std::set<std::pair<uint16_t, uint32_t>> there;  // stage, microbatch
        for (const Pass& pass : list) {
            if (pass.op == Op::R) there.emplace(pass.stage, pass.microbatch);
        }
        std::vector<Pass> result;
        const auto recompute_for = [&](const Pass& pass) {
            const bool backward = pass.op == Op::B || pass.op == Op::I;
            if (backward && !there.contains({pass.stage, pass.microbatch})) {
                result.push_back({Op::R, pass.stage, pass.microbatch});
            }
        };
        for (size_t i = 0; i < list.size(); ++i) {
            const bool second_of_pair = i > 0 && list[i - 1].with_next;
            if (!second_of_pair) recompute_for(list[i]);
            if (list[i].with_next && i + 1 < list.size()) recompute_for(list[i + 1]);
            result.push_back(list[i]);
        }
        list = std::move(result);
    }
    return schedule;
}

PassCosts with_recomputation(PassCosts costs) {
    for (PassCosts::OpCosts& stage : costs.stage) {
        for (const Op op : {Op::B, Op::I}) stage[static_cast<size_t>(op)] += cost_in(stage, Op::R);
    }
    return costs;
}

Schedule with_recomputation(const PassCosts& costs,
                            const std::function<Schedule(const PassCosts&)>& order) {
    return with_recomputation(order(with_recomputation(costs)));
}

void divide_saved(StageBytes& bytes, Recompute recompute, int64_t selective) {
    const int64_t all = bytes.saved + bytes.recomputed;
    bytes.recomputed = recompute == Recompute::full        ? all
                       : recompute == Recompute::selective ? std::min(all, selective)
                                                           : 0;
    bytes.saved = all - bytes.recomputed;
}

Recompute granularity(std::optional<Recompute> asked, bool own, const std::string& name) {
    if (!own) return asked.value_or(Recompute::none);
    if (asked == Recompute::none) {
        throw UsageError("--recompute-granularity none: " + name +
                         " has recomputation passes (R); use selective or full");
    }
    return asked.value_or(Recompute::full);
}

}  // namespace vocabpipe
