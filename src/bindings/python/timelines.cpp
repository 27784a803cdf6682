// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string_view>

#include "src/bindings/python/bindings.hpp"
#include "src/bindings/step_timeline.hpp"
#include "src/tool/support/quantity.hpp"
#include "vocabpipe/explain.hpp"
#include "vocabpipe/html_timeline.hpp"
#include "vocabpipe/svg_timeline.hpp"

namespace vocabpipe::bindings::python {

namespace {

using namespace nanobind::literals;

nb::dict rank_table(const StepTimeline& of) {
    std::vector<int32_t> rank;
    std::vector<double> busy;
    std::vector<double> span;
    std::vector<double> bubble;
    std::vector<int64_t> peak;
    for (const RankSummary& row : of.summary.ranks) {
        rank.push_back(static_cast<int32_t>(rank.size()));
        busy.push_back(of.time(row.busy_ns));
        span.push_back(of.time(row.span_ns));
        bubble.push_back(row.bubble);
    }
    nb::dict table;
    table["rank"] = column(rank);
    table["busy"] = column(busy);
    table["span"] = column(span);
    table["bubble"] = column(bubble);
    if (of.simulated) {
        for (const RankMemory& memory : of.simulated->simulation.memory) {
            peak.push_back(static_cast<int64_t>(memory.peak_bytes));
        }
        table["peak_bytes"] = column(peak);
    }
    return table;
}

nb::dict span_table(const StepTimeline& of) {
    std::vector<int32_t> rank;
    std::vector<int64_t> microbatch;
    std::vector<double> begin;
    std::vector<double> end;
    nb::list name;
    nb::list lane;
    for (const RecordedRun::Slice& slice : of.run.slices) {
        rank.push_back(slice.rank);
        const std::string& text = of.run.names[slice.name];
        name.append(nb::str(text.data(), text.size()));
        microbatch.push_back(slice.number == RecordedRun::kNone ? -1 : int64_t{slice.number});
        const std::string_view in = to_string(slice.lane);
        lane.append(nb::str(in.data(), in.size()));
        begin.push_back(of.time(slice.begin_ns));
        end.push_back(of.time(slice.end_ns));
    }
    nb::dict table;
    table["rank"] = column(rank);
    table["lane"] = lane;
    table["name"] = name;
    table["microbatch"] = column(microbatch);
    table["begin"] = column(begin);
    table["end"] = column(end);
    return table;
}

nb::dict critical_shares(const StepTimeline& of) {
    const tool::SimulatedPrograms& simulated = of.simulation("critical_path");
    std::vector<double> time;
    std::vector<double> share;
    nb::list name;
    for (const PathShare& part :
         critical_path(simulated.simulation.timeline, simulated.programs).shares) {
        name.append(nb::str(part.name.data(), part.name.size()));
        time.push_back(of.time(part.ns));
        share.push_back(part.share);
    }
    nb::dict table;
    table["name"] = name;
    table["time"] = column(time);
    table["share"] = column(share);
    return table;
}

std::vector<RecordedRun> runs_of(const std::vector<const StepTimeline*>& steps) {
    std::vector<RecordedRun> runs;
    for (const StepTimeline* step : steps) runs.push_back(step->run);
    return runs;
}

}  // namespace

void bind_timelines(nb::module_& module) {
    nb::class_<StepTimeline>(module, "Timeline", nb::dynamic_attr())
        .def_prop_ro("title", [](const StepTimeline& of) { return of.run.title; })
        .def_prop_ro("costs", [](const StepTimeline& of) { return of.run.costs; })
        .def_prop_ro(
            "unit",
            [](const StepTimeline& of) { return of.run.ticks_per_unit == 0 ? "ns" : "costs"; })
        .def_prop_ro("ranks", [](const StepTimeline& of) { return of.run.ranks; })
        .def_prop_ro("makespan",
                     [](const StepTimeline& of) { return of.time(of.summary.makespan_ns); })
        .def_prop_ro("step", [](const StepTimeline& of) { return of.time(of.summary.step_ns); })
        .def_prop_ro("bubble", [](const StepTimeline& of) { return of.summary.bubble; })
        .def("rank_table", &rank_table)
        .def("span_table", &span_table)
        .def("critical_path", &critical_shares)
        .def("explain", &explained, "rank"_a = nb::none(), "at"_a = nb::none())
        .def("page", &page)
        .def(
            "write_chrome_trace",
            [](const StepTimeline& of, const std::string& path) {
                const tool::SimulatedPrograms& simulated = of.simulation("write_chrome_trace");
                write_chrome_trace(path, simulated.simulation.timeline, simulated.programs,
                                   of.run.title);
            },
            "path"_a)
        .def("__repr__", [](const StepTimeline& of) {
            return "<vocabpipe.Timeline " + of.run.title + ": step " +
                   of.text()(of.summary.step_ns) + ", bubble " +
                   tool::percent_text(of.summary.bubble) + ">";
        });

    module.def(
        "simulate",
        [](const DescribedSchedule& schedule, const Costs& costs, bool wait_for_reports, int cores,
           const std::string& receive_ahead, const std::string& tile_pieces) {
            const nb::gil_scoped_release others_run;
            return simulated_step(schedule, costs,
                                  {.wait_for_reports = wait_for_reports,
                                   .cores = cores,
                                   .receive_ahead = receive_ahead,
                                   .tile_pieces = tile_pieces});
        },
        "schedule"_a, "costs"_a, "wait_for_reports"_a, "cores"_a, "receive_ahead"_a,
        "tile_pieces"_a);
    module.def("read_chrome_trace", &recorded_step, "path"_a);
    module.def(
        "write_html",
        [](const std::vector<const StepTimeline*>& steps, const std::string& path,
           const std::string& title) { write_html_timeline(path, runs_of(steps), title); },
        "steps"_a, "path"_a, "title"_a);
    module.def(
        "write_svg",
        [](const std::vector<const StepTimeline*>& steps, const std::string& path,
           const std::string& title, bool critical_path) {
            write_svg_timeline(path, runs_of(steps),
                               {.title = title, .critical_path = critical_path});
        },
        "steps"_a, "path"_a, "title"_a, "critical_path"_a);
}

}  // namespace vocabpipe::bindings::python
