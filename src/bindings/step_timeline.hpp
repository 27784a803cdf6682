// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/bindings/described_schedule.hpp"
#include "src/tool/schedule/simulated_programs.hpp"
#include "vocabpipe/explain.hpp"
#include "vocabpipe/recorded_run.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe::bindings {

/// A step with times: simulated, or recorded by a run.
struct StepTimeline {
    RecordedRun run;
    TimelineSummary summary;
    std::optional<tool::SimulatedPrograms> simulated;  ///< none: recorded

    /// In the unit of the costs; nanoseconds where they are.
    [[nodiscard]] double time(int64_t ns) const;
    /// For people.
    [[nodiscard]] TimeText text() const;
    /// What the simulation knows and a trace does not. Throws UsageError naming `what`.
    [[nodiscard]] const tool::SimulatedPrograms& simulation(const char* what) const;
};

/// How a step is simulated; the flags of `vocabpipe simulate`.
struct SimulationRequest {
    bool wait_for_reports = true;        ///< SimulateOptions::wait_for_reports
    int cores = 0;                       ///< SimulateOptions::cores
    std::string receive_ahead = "auto";  ///< receive_ahead_from()
    std::string tile_pieces = "auto";    ///< tile_pieces_from()
};

/// Runs the schedule in simulated time. Throws UsageError.
[[nodiscard]] StepTimeline simulated_step(const DescribedSchedule& described, const Costs& costs,
                                          const SimulationRequest& request);

/// The step of a Chrome trace. Throws as read_chrome_trace().
[[nodiscard]] StepTimeline recorded_step(const std::string& path);

/// Where the time went; with a rank and a time, what the rank did then, or waited for. Throws
/// UsageError for one without the other, and a time outside the step.
[[nodiscard]] std::string explained(const StepTimeline& of, std::optional<int> rank,
                                    std::optional<double> at);

/// The page of the step alone, as write_html_timeline() writes it.
[[nodiscard]] std::string page(const StepTimeline& of);

}  // namespace vocabpipe::bindings
