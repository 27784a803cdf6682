// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "benchmarks/prediction_errors.hpp"
#include "vocabpipe/plan.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// One run that others published, and how `plan` is asked for it.
struct PublishedRun {
    std::string group;  ///< rows whose errors are reported together
    std::string cell;   ///< rows among which somebody would choose: model, GPUs, batch, kernels
    PlanOptions options;
    std::optional<double> step_seconds;  ///< none: it ran out of memory
    std::optional<double> memory_gib;    ///< of the rank that needs most
    /// Half of the rows; constants are fitted to the other half.
    bool held_out = false;
};

/// The best row of a plan for the run, and its comparison with what was published. Throws
/// UsageError if no plan can have the run.
[[nodiscard]] PlanRow predict(const PublishedRun& run);
[[nodiscard]] Prediction compare(const PublishedRun& run, const PlanRow& predicted);

struct PublishedRuns {
    std::vector<PublishedRun> runs;
    std::map<std::string, int> left_out;  ///< by reason
};

/// The hardware of a built-in name.
using Devices = std::function<DeviceSpec(const std::string& name)>;

/// Reads a table of published runs: either columns schedule, vocab_mode, gpus, seq, vocab, ...
/// (PublishedStep), or columns source, model, gpu, gpus, tp, pp, dp, ...
/// (data/published_truth.csv). Throws InputFileError.
[[nodiscard]] PublishedRuns read_published_runs(const std::string& path,
                                                const Devices& devices = load_device);

}  // namespace vocabpipe
