// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/choose_schedule.hpp"

#include "src/train/options/check_options.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/stage_layout.hpp"

#include <cstdint>
#include <iterator>

namespace vocabpipe {

namespace {

/// Stages per rank of the pipeline by layout or flags, rounded down; 0: they say nothing.
int64_t stages_of_rank(const TrainOptions& o, int ranks) {
    const int64_t pipeline = mesh_of(o, ranks).pipeline;
    if (!o.layout.empty()) return std::ssize(parse_stage_layout(o.layout).layers) / pipeline;
    if (o.layers_per_chunk > 0) return o.model.num_layers / (o.layers_per_chunk * pipeline);
    return o.rule.chunks;
}

}  // namespace

TrainOptions with_chosen_schedule(TrainOptions options, int ranks) {
    if (!options.schedule_by_stages) return options;
    try {
        if (stages_of_rank(options, ranks) > 1) options.schedule = "interleaved";
    } catch (const UsageError&) {  // the run's checks report it, on all ranks alike
    }
    return options;
}

}  // namespace vocabpipe
