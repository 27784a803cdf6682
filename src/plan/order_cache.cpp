// SPDX-License-Identifier: Apache-2.0
#include "src/plan/order_cache.hpp"

#include "vocabpipe/make_order.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/trained_parts.hpp"
#include "vocabpipe/with_recomputation.hpp"

namespace vocabpipe {

Schedule OrderCache::order(const StepModel& step, const Candidate& candidate) {
    OrderSource source{.name = candidate.schedule,
                       .recompute = candidate.recompute != Recompute::none};
    const Generator& family = generator(candidate.schedule);
    const auto make = [&] {
        return without_frozen_passes(make_order(source, step.generate), step.trained);
    };
    if (!family.searches) return make();
    ScheduleOptions options = step.generate;
    if (source.recompute) options.costs = with_recomputation(options.costs);
    Key key{options.ranks, options.microbatches, options.rule.memory_limit, options.costs.hop};
    for (const PassCosts::OpCosts& stage : options.costs.stage) {
        key.insert(key.end(), stage.begin(), stage.end());
    }
    std::shared_ptr<Entry> entry;
    {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<Entry>& there = entries_[std::move(key)];
        if (!there) there = std::make_shared<Entry>();
        entry = there;
    }
    std::call_once(entry->made, [&] {
        try {
            entry->passes = family.make(options);
        } catch (...) {
            entry->error = std::current_exception();
        }
    });
    if (entry->error) std::rethrow_exception(entry->error);
    source.passes = &entry->passes;
    return make();
}

}  // namespace vocabpipe
