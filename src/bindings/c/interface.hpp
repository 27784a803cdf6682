// SPDX-License-Identifier: Apache-2.0
// What the files of the C interface share: each implements one chapter of the header.
#pragma once

#include "src/bindings/c/calls.hpp"
#include "src/bindings/described_schedule.hpp"
#include "src/bindings/step_timeline.hpp"
#include "vocabpipe/c/vocabpipe.h"
#include "vocabpipe/plan.hpp"

struct vp_schedule {
    vocabpipe::bindings::DescribedSchedule described;
};
struct vp_timeline {
    vocabpipe::bindings::StepTimeline step;
};
struct vp_plan {
    vocabpipe::Plan plan;
};

namespace vocabpipe::bindings::c {

/// The costs of the library, of NULL the default ones.
[[nodiscard]] Costs costs_of(const vp_costs* costs);

}  // namespace vocabpipe::bindings::c
