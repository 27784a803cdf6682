// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/end_report.hpp"

#include "src/support/process_memory.hpp"
#include "src/train/log/run_outputs.hpp"
#include "src/train/plan/plan_profile.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/simulate.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>

namespace vocabpipe {

namespace {

RankReport report_of_rank(const TrainingPlan& plan, TrainedRank& rank, const RankUsage& usage,
                          const RunEnd& end) {
    const int me = rank.communicator().rank();
    const Program& program = rank.executor().program(end.program);
    RankReport mine;
    mine.busy_share = usage.busy_share();
    mine.bubble = usage.bubble();
    mine.median_step_ns = usage.median_step_ns();
    mine.live_peak_bytes = static_cast<int64_t>(program.live_peak_bytes);
    mine.arena_bytes = static_cast<int64_t>(rank.executor().arena_bytes());
    mine.persistent_bytes = persistent_bytes(plan, me).total();
    if (const auto& start = plan.placement(me).memory) {
        mine.start_bytes = static_cast<int64_t>(start->most_allocated);
        mine.measured_peak_bytes = static_cast<int64_t>(rank.device().memory()->most_allocated);
    } else {
        mine.snapshot_bytes = end.snapshot_bytes;
        mine.start_bytes = end.start_memory;
        mine.kernel_bytes = kernel_bytes(plan, me);
        mine.measured_peak_bytes = process_memory().peak;
    }
    mine.memory_of = plan.one_process() ? 0 : me;
    return mine;
}

RunReport report_of_run(const TrainingPlan& plan, const RunEnd& end) {
    RunReport report;
    report.schedule = plan.options().schedule;
    report.vocab_mode = std::string(to_string(plan.options().vocab_mode));
    report.one_process = plan.one_process();
    for (int rank = 0; rank < plan.ranks(); ++rank) {
        report.devices.push_back(plan.placement(rank).device);
    }
    if (const RankPlacement* const shared = plan.shared_cores()) {
        report.shared_cores = shared->cores;
        report.ranks_sharing = shared->ranks_sharing;
    }
    report.tokens_per_step = end.tokens_per_step;
    report.first_loss = end.first_loss;
    report.last_loss = end.last_loss;
    return report;
}

/// Elapsed time of all passes over their CPU time. Where the two of a pair run at the same time, it
/// counts once.
double time_over_cpu(const Timeline& timeline) {
    int64_t time = 0, cpu = 0;
    std::map<uint16_t, int64_t> until;  // [rank]
    for (const Span& span : timeline.spans) {
        if (span.lane != Lane::compute) continue;
        int64_t& counted = until.try_emplace(span.rank, INT64_MIN).first->second;
        time += std::max(span.end_ns, counted) - std::max(span.begin_ns, counted);
        counted = std::max(span.end_ns, counted);
        cpu += span.cpu_ns;
    }
    return cpu > 0 ? static_cast<double>(time) / static_cast<double>(cpu) : 1;
}

void write_traces(const std::string& path, const std::string& name, const Timeline& executed,
                  const Timeline& simulated, const std::vector<Program>& programs,
                  const Mesh& mesh) {
    write_chrome_trace(path + kExecutedTrace, executed, programs, name + ", last step, executed",
                       mesh);
    write_chrome_trace(path + kSimulatedTrace, simulated, programs,
                       name + ", simulated from measured pass costs", mesh);
    std::printf("timeline: %s.json (open in https://ui.perfetto.dev)\n", path.c_str());
}

}  // namespace

void report_run(const TrainingPlan& plan, TrainedRank& rank, RunMeter& meter, const RunEnd& end) {
    const TrainOptions& options = plan.options();
    const Timeline timeline = rank.gather_timeline(end.program);
    const MeasuredCosts measured = meter.measure(plan, rank);
    RunReport report = report_of_run(plan, end);
    report.ranks =
        gather_rank_reports(rank.communicator(), report_of_rank(plan, rank, meter.usage(), end));
    rank.communicator().agree([&] {
        if (rank.communicator().rank() != 0) return;
        const std::vector<Program> programs = end.plan.lowered.all();
        const Simulation simulation = simulate(programs, measured.cpu);
        report.simulated_step_ns = simulation.summary.makespan_ns;
        report.simulated_bubble = simulation.summary.bubble;
        report.measured_step_ns = measured.median_step_ns;
        report.fixed_step_ns = measured.wall.fixed_ns;
        report.predicted_step_ns = simulate(programs, measured.wall).summary.step_ns;
        const ReplayCosts replay(timeline, programs, measured.wall);
        report.replayed_ns = simulate(programs, replay).summary.makespan_ns;
        report.executed_ns = summarize(timeline, programs).makespan_ns;
        report.pass_time_over_cpu = time_over_cpu(timeline);
        print_report(report);
        if (!options.report.empty()) write_report(options.report, report);
        if (!options.profile.empty()) {
            write_profile(options.profile,
                          profile_of(plan, measured.wall, meter.derived(), meter.links()));
        }
        if (!options.trace_dir.empty()) {
            const std::string path = trace_path(options, plan.mesh());
            write_traces(path, path.substr(options.trace_dir.size() + 1), timeline,
                         simulation.timeline, programs, plan.mesh());
        }
        std::fflush(stdout);
    });
}

}  // namespace vocabpipe
