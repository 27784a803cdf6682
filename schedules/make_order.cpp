// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/make_order.hpp"

#include "vocabpipe/insert_vocabulary.hpp"
#include "vocabpipe/with_recomputation.hpp"

namespace vocabpipe {

Schedule placement_of(const OrderSource& source, const ScheduleOptions& options) {
    if (source.passes == nullptr) return placement_of(source.name, options);
    Schedule placed = *source.passes;
    if (placed.output.vocab_size() == 0) {
        place_vocabulary(placed, options.vocab_mode, options.vocab_size);
    }
    return placed;
}

Schedule make_order(const OrderSource& source, const ScheduleOptions& options) {
    const auto order = [&](const PassCosts& costs) {
        ScheduleOptions under = options;
        under.costs = costs;
        return source.passes != nullptr ? finish_schedule(*source.passes, under)
                                        : make_schedule(source.name, under);
    };
    return source.recompute ? with_recomputation(options.costs, order) : order(options.costs);
}

}  // namespace vocabpipe
