// SPDX-License-Identifier: Apache-2.0
// The simulation behind the form of the timeline page, compiled to WebAssembly (build.sh): the
// generators, lowering and simulation of `vocabpipe simulate`, for costs that are figures.
#include "schedules/families.hpp"
#include "src/schedule/html/run_data.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/schedule/figure_costs.hpp"
#include "src/tool/support/flag_names.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/step_pieces.hpp"

#include <charconv>
#include <cstdlib>
#include <string>
#include <vector>

namespace vocabpipe::tool {

namespace {

/// As `make_step()` in scheduled_step.cpp, without files.
RecordedRun run_of(const std::string& name, ScheduleOptions options, const FigureOptions& figures) {
    const VocabMode mode = options.vocab_mode;
    options.vocab_size = figured_model(figures, options.ranks).vocabulary_rows;
    const OrderSource source{.name = name};
    if (!figures.costs.empty() && figures.num_layers == 0 && mode == VocabMode::redistributed) {
        throw UsageError("redistributed: set the number of layers, on which depends what moves");
    }
    PricedStep step =
        price_step(FigureCosts(figures, Recompute::none), placement_of(source, options), mode);
    order_step(step, source, options);
    const TableCosts& costs = step.price.costs;
    const EarlyReceives made =
        lower_step(step.schedule, step.price.sizes, costs, {.receive_ahead = 0, .pieces = 1});
    const std::vector<Program> programs = made.lowered.all();
    const std::string title = name + " " + std::string(to_string(mode)) + ", " +
                              counted(options.ranks, "rank") + ", " +
                              counted(options.microbatches, "microbatch", "microbatches");
    RecordedRun run = record(simulate(programs, costs).timeline, programs, title);
    run.ticks_per_unit = kTicksPerUnit;
    run.costs = costs_text(figures, options.ranks);
    return run;
}

std::string answer;  // of the last call; the page reads it from the module's memory

}  // namespace

}  // namespace vocabpipe::tool

using namespace vocabpipe;

extern "C" {

/// Memory for the page's text of a request.
__attribute__((export_name("room"))) char* room(int bytes) {
    return static_cast<char*>(std::malloc(static_cast<size_t>(bytes)));
}

/// Names of the families, one per line.
__attribute__((export_name("families"))) const char* families() {
    tool::answer.clear();
    for (const Generator& family : generators()) tool::answer += std::string(family.name) + "\n";
    return tool::answer.c_str();
}

/// The run as JSON. An error calls page.refused() with its message, which does not return.
__attribute__((export_name("draw"))) const char* draw(const char* family, const char* mode,
                                                      const char* costs, int pp, int microbatches,
                                                      int chunks, int layers, int latency) {
    tool::answer =
        html::run_data(tool::run_of(family,
                                    {.ranks = pp,
                                     .microbatches = microbatches,
                                     .vocab_mode = vocab_mode_from(mode),
                                     .rule = {.chunks = chunks}},
                                    {.costs = costs, .latency = latency, .num_layers = layers}));
    return tool::answer.c_str();
}

}  // extern "C"

// Debian's C++ library for WebAssembly has no exceptions: a throw ends the call.
extern "C" {

__attribute__((import_module("page"), import_name("refused"))) void refused(const char* message);

void* __cxa_allocate_exception(size_t bytes) noexcept {
    return std::malloc(bytes);
}

[[noreturn]] void __cxa_throw(void* thrown, void*, void (*)(void*)) {
    const std::string what = static_cast<const std::exception*>(thrown)->what();
    refused(tool::with_flags(what, tool::Caller::vocabpipe).c_str());
    std::abort();
}

}  // extern "C"
