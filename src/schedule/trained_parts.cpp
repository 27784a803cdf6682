// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/trained_parts.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace vocabpipe {

namespace {

/// Whether the step needs the pass.
bool is_needed(const Pass& pass, const TrainedParts& trained) {
    switch (pass.op) {
        case Op::W:
            return trained.stages[pass.stage];
        case Op::B:
        case Op::I:
        case Op::R:
            return pass.stage >= trained.first_backward;
        case Op::G:
            return trained.embedding;
        default:
            return true;
    }
}

bool all_trained(const TrainedParts& trained) {
    return trained.embedding && trained.first_backward == 0 &&
           std::ranges::all_of(trained.stages, std::identity());
}

}  // namespace

Schedule without_frozen_passes(Schedule schedule, const TrainedParts& trained) {
    if (schedule.forward_only() || all_trained(trained)) return schedule;
    for (std::vector<Pass>& list : schedule.passes) {
        std::vector<Pass> kept;
        for (Pass pass : list) {
            if (!is_needed(pass, trained)) {
                if (!kept.empty()) kept.back().with_next = false;  // in case this closes its pair
                continue;
            }
            if (pass.op == Op::I && !trained.stages[pass.stage]) pass.op = Op::B;
            kept.push_back(pass);
        }
        list = std::move(kept);
    }
    schedule.first_backward = trained.first_backward;
    schedule.embedding_gradient = trained.embedding;
    return schedule;
}

}  // namespace vocabpipe
