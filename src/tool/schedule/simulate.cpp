// SPDX-License-Identifier: Apache-2.0
// vocabpipe simulate: time, bubble and memory of one schedule.
#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/support/json_text.hpp"
#include "src/support/output_check.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/schedule/scheduled_step.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/quantity.hpp"
#include "src/tool/support/text.hpp"
#include "vocabpipe/html_timeline.hpp"

namespace vocabpipe::tool {

namespace {

struct SimulateArguments {
    std::string schedule;
    ScheduleFlags flags;
    bool json = false;
    std::string trace, html;
};

/// Short enough for all of them to fit on a line.
std::string_view short_name(MemoryUse use) {
    switch (use) {
        case MemoryUse::activations:
            return "activ";
        case MemoryUse::vocabulary:
            return "vocab";
        case MemoryUse::communication:
            return "comm";
        case MemoryUse::workspace:
            return "work";
        case MemoryUse::weights:
            return "weights";
        case MemoryUse::gradients:
            return "grads";
        case MemoryUse::optimizer:
            return "optim";
    }
    return to_string(use);
}

std::string mib(uint64_t bytes) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.1f", static_cast<double>(bytes) / (1 << 20));
    return text.data();
}

/// What a whole output layer does to the bubble, if it makes its rank the busiest by at least a
/// hundredth; else "".
std::string whole_layer_text(const SimulatedStep& run) {
    const std::vector<int> owners = run.step.schedule.output.owners();
    const std::vector<RankSummary>& ranks = run.simulation.summary.ranks;
    if (owners.size() != 1 || run.step.schedule.ranks == 1 || run.step.mesh().slices() > 1) {
        return "";
    }
    double mean = 0;
    int64_t most = 0;
    for (const RankSummary& rank : ranks) {
        mean += static_cast<double>(rank.busy_ns) / static_cast<double>(ranks.size());
        most = std::max(most, rank.busy_ns);
    }
    const auto owner = static_cast<size_t>(owners.front());
    if (ranks[owner].busy_ns < most || static_cast<double>(most) < 1.01 * mean) return "";
    return "rank " + std::to_string(owner) + " has the whole output layer and is busy " +
           percent_text(static_cast<double>(most) / mean - 1) +
           " longer than the mean rank, which alone makes a bubble of " +
           percent_text(1 - mean / static_cast<double>(most)) +
           "; --vocab-mode one_barrier gives every rank a share";
}

/// "hidden size 4096, 1 x 2048 tokens per microbatch, bf16, 4 layers, 128000 vocabulary rows".
std::string memory_of(const ScheduledStep& step) {
    const SizedModel& model = step.model;
    std::string text = "hidden size " + std::to_string(step.sizes.hidden) + ", " +
                       (step.lengths.empty() ? "" : "at most ") +
                       std::to_string(model.micro_batch_size) + " x " +
                       std::to_string(model.seq_length) + " tokens per microbatch, " +
                       (step.sizes.dtype == DType::bf16 ? "bf16" : "fp32") + ", ";
    if (model.layers > 0) text += counted(model.layers, "layer") + ", ";
    text += counted(step.schedule.output.vocab_size(), "vocabulary row");
    return text + (step.persistent.empty() ? "; without weights and optimizer" : "");
}

void print_table(const SimulatedStep& run) {
    const TimelineSummary& summary = run.simulation.summary;
    const int ticks = run.step.ticks_per_unit;
    const auto time = [&](int64_t value) { return time_text(value, ticks); };
    std::printf("%s\n", heading(run.step).c_str());
    std::printf("makespan      %s\n", time(summary.makespan_ns).c_str());
    std::printf("largest span  %s\n", time(summary.largest_span_ns).c_str());
    if (summary.fixed_ns > 0) std::printf("fixed         %s\n", time(summary.fixed_ns).c_str());
    std::printf("step          %s (%s)\n", time(summary.step_ns).c_str(),
                summary.barrier ? "makespan: the optimizer step waits for every rank"
                                : "largest span: steps of different ranks overlap");
    std::printf("bubble        %s\n", percent_text(summary.bubble).c_str());
    if (const std::string why = whole_layer_text(run); !why.empty()) {
        std::printf("because       %s\n", wrap_text(why, 14, 14).c_str());
    }
    if (run.receive_ahead == kAsSoonAsSent) {
        std::printf("receives      as soon as sent\n");
    } else if (run.receive_ahead > 1) {
        std::printf("receives      %d passes ahead\n", run.receive_ahead);
    }
    std::printf("\n");

    std::vector<MemoryUse> uses;
    for (size_t use = 0; use < kMemoryUses; ++use) {
        for (const RankMemory& memory : run.simulation.memory) {
            if (memory.at_peak[use] == 0) continue;
            uses.push_back(static_cast<MemoryUse>(use));
            break;
        }
    }
    TextTable times;
    times.row({"rank", "busy", "idle", "busy %"});
    TextTable bytes;
    bytes.row({"rank", "peak"});
    for (const MemoryUse use : uses) bytes.cell(std::string(short_name(use)));
    for (size_t rank = 0; rank < summary.ranks.size(); ++rank) {
        const RankSummary& of_rank = summary.ranks[rank];
        const RankMemory& memory = run.simulation.memory[rank];
        times.row({std::to_string(rank), time(of_rank.busy_ns),
                   time(std::max<int64_t>(0, summary.makespan_ns - of_rank.busy_ns)),
                   percent_text(1 - of_rank.bubble)});
        bytes.row({std::to_string(rank), mib(memory.peak_bytes)});
        for (const MemoryUse use : uses) {
            bytes.cell(mib(memory.at_peak[static_cast<size_t>(use)]));
        }
    }
    std::printf("%s\n%s\n%s", times.text().c_str(),
                wrap_text("peak memory of each rank, in MiB: " + memory_of(run.step)).c_str(),
                ("\n" + bytes.text()).c_str());
}

nlohmann::ordered_json by_use(const BytesByUse& bytes) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    for (size_t use = 0; use < kMemoryUses; ++use) {
        json[std::string(to_string(static_cast<MemoryUse>(use)))] = bytes[use];
    }
    return json;
}

void print_json(const SimulatedStep& run) {
    const TimelineSummary& summary = run.simulation.summary;
    const int ticks = run.step.ticks_per_unit;
    const auto time = [&](int64_t value) {
        return ticks == 0 ? nlohmann::ordered_json(value)
                          : nlohmann::ordered_json(static_cast<double>(value) / ticks);
    };
    nlohmann::ordered_json json{{"title", run.step.title},
                                {"costs", run.step.costs_of},
                                {"ranks", run.step.mesh().size()},
                                {"stages", run.step.schedule.stages},
                                {"microbatches", run.step.schedule.microbatches},
                                {"time_unit", run.step.ticks_per_unit == 0 ? "ns" : "costs"},
                                {"makespan", time(summary.makespan_ns)},
                                {"largest_span", time(summary.largest_span_ns)},
                                {"fixed", time(summary.fixed_ns)},
                                {"barrier", summary.barrier},
                                {"step", time(summary.step_ns)},
                                {"bubble", summary.bubble},
                                {"receive_ahead", run.receive_ahead},
                                {"tile_pieces", run.pieces}};
    if (!run.step.lengths.empty()) json["lengths"] = lengths_text(run.step);
    for (size_t rank = 0; rank < summary.ranks.size(); ++rank) {
        const RankSummary& of_rank = summary.ranks[rank];
        const RankMemory& memory = run.simulation.memory[rank];
        json["by_rank"].push_back({{"rank", rank},
                                   {"busy", time(of_rank.busy_ns)},
                                   {"span", time(of_rank.span_ns)},
                                   {"bubble", of_rank.bubble},
                                   {"peak_bytes", memory.peak_bytes},
                                   {"peak_at", time(memory.peak_at_ns)},
                                   {"bytes_at_peak", by_use(memory.at_peak)},
                                   {"largest_bytes", by_use(memory.largest)}});
    }
    std::printf("%s\n", json_text(json, 2).c_str());
}

void simulate_schedule(const SimulateArguments& options) {
    ScheduleFlags flags = options.flags;
    const std::string name = take_own_flags(options.schedule, flags);
    OutputCheck check({name, flags.costs, flags.pass_times});
    if (!options.trace.empty()) check.add("--trace", options.trace, trace_output());
    if (!options.html.empty()) check.add("--html", options.html, page_output());
    const SimulatedStep simulated = simulate_step(name, flags);
    const std::string& title = simulated.step.title;
    std::optional<LongWork> work(std::in_place, "writing " + title);
    if (!options.trace.empty()) {
        write_chrome_trace(options.trace, simulated.simulation.timeline, simulated.programs, title,
                           simulated.step.mesh());
    }
    if (!options.html.empty()) {
        RecordedRun recorded = record(simulated.simulation.timeline, simulated.programs, title,
                                      simulated.step.persistent, simulated.step.mesh());
        recorded.ticks_per_unit = simulated.step.ticks_per_unit;
        recorded.costs = simulated.step.costs_of;
        write_html_timeline(options.html, std::span(&recorded, 1), title);
    }
    work.reset();
    if (options.json) {
        print_json(simulated);
    } else {
        print_table(simulated);
    }
}

}  // namespace

Command simulate_command() {
    const auto o = std::make_shared<SimulateArguments>();
    return {.name = "simulate",
            .description = "Show time, bubble and memory of a schedule, without running it",
            .flags = {{.flags = {schedule_argument(o->schedule)}},
                      schedule_source_flags(o->flags),
                      lowering_flags(o->flags),
                      {.flags = {{.names = "--json",
                                  .value = &o->json,
                                  .help = "Print JSON instead of a table"},
                                 {.names = "--trace",
                                  .value = &o->trace,
                                  .help = "Also write a Chrome trace to this file"},
                                 {.names = "--html",
                                  .value = &o->html,
                                  .help = "Also write a timeline page to this file"}}}},
            .run = [o](const GivenFlags&) { simulate_schedule(*o); }};
}

}  // namespace vocabpipe::tool
