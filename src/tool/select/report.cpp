// SPDX-License-Identifier: Apache-2.0
// vocabpipe select run: its tables and its JSON report.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/select/files/fixed_point.hpp"
#include "src/support/json_text.hpp"
#include "src/support/process_memory.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/select/select_run.hpp"
#include "src/tool/support/quantity.hpp"

namespace vocabpipe::tool {

namespace {

using Json = nlohmann::ordered_json;

std::string hexadecimal(uint64_t number) {
    return format("%016llx", static_cast<unsigned long long>(number));
}

Json json_of(const MessageCount& count) {
    return {{"messages", count.messages},
            {"sent_to_other_ranks", count.sent},
            {"sent_bytes", count.bytes}};
}

Json json_of(const std::vector<MemoryPlan::Term>& terms) {
    Json json = Json::object();
    for (const auto& [name, bytes] : terms) json[name] = bytes;
    return json;
}

void row(TextTable& table, const std::string& name, std::string value) {
    table.row({name, std::move(value)}, {true, true});
}

std::string objective_text(int64_t objective) {
    return std::to_string(objective) +
           format(" (%.6g)", static_cast<double>(objective) / kFixedPointOne);
}

/// The share of the bound that the choice has for certain, in percent, rounded down.
std::optional<double> certain_percent(const Selection& selection) {
    const auto& certificate = selection.certificate();
    if (!certificate || !certificate->bound || *certificate->bound <= 0 ||
        selection.objective() < 0) {
        return std::nullopt;
    }
    const WideSum hundredths = WideSum{10'000} * selection.objective() / *certificate->bound;
    return static_cast<double>(hundredths) / 100;
}

std::string certificate_text(const Selection& selection) {
    const auto& bound = selection.certificate()->bound;
    if (!bound) return "the bound is beyond 64 bits; use a smaller --alpha";
    if (*bound == selection.objective()) return "no choice of as many has more: this is a best one";
    const auto percent = certain_percent(selection);
    return "no choice of as many has more than " + objective_text(*bound) +
           (percent ? format("; this one has at least %.2f %% of the best", *percent) : "");
}

Json json_of(const Selection& selection) {
    const auto& certificate = selection.certificate();
    if (!certificate) return nullptr;
    const auto percent = certain_percent(selection);
    return {{"bound", certificate->bound ? Json(*certificate->bound) : Json()},
            {"percent", percent ? Json(*percent) : Json()},
            {"lowering_samples", certificate->lowering}};
}

}  // namespace

std::vector<std::string> selection_notes(const SelectRunArguments& arguments,
                                         const SelectionRun& run) {
    const SelectSamplesOptions& options = arguments.options;
    const Selection& selection = run.selection();
    const BoundingReport& bounding = selection.progress().bounding;
    const std::string weights = "--alpha " + std::to_string(options.alpha) + ", --beta " +
                                std::to_string(options.beta) + ": ";
    const int64_t lowering = selection.certificate() ? selection.certificate()->lowering : 0;
    std::vector<std::string> notes;
    if (selection.objective() < 0) {
        notes.push_back(weights +
                        "the objective is below 0, that of no sample at all: similarities "
                        "outweigh utilities; use a larger --alpha or choose fewer samples");
    } else if (lowering > 0) {
        notes.push_back(weights + std::to_string(lowering) + " of the " +
                        counted(run.size(), "chosen sample") +
                        " lower the objective, as their similarities outweigh their utilities; use "
                        "a larger --alpha or choose fewer samples");
    }
    if (options.alpha == 0) notes.push_back("--alpha 0: utilities do not count; use a larger one");
    if (options.beta == 0) {
        notes.push_back(
            "--beta 0: similarities do not count, so the samples with the largest "
            "utilities are chosen; use a larger one");
    }
    if (const auto alpha = bounding.deciding_alpha) {
        const std::string rule = "--bounding " + to_string(options.bounding) + ": decided nothing";
        notes.push_back(
            *alpha > 0
                ? rule + "; with --beta " + std::to_string(options.beta) +
                      ", it begins to decide at --alpha " + std::to_string(*alpha) +
                      ", and rules with a smaller share of the neighbors earlier"
                : rule +
                      ", and no larger --alpha would change that: utilities differ too little; "
                      "rules with a smaller share of the neighbors may decide");
    }
    return notes;
}

void print_selection_plan(const SelectRunArguments& arguments, const SelectionRun& run) {
    const SelectSamplesOptions& options = arguments.options;
    TextTable table;
    row(table, "samples", std::to_string(run.sizes().nodes));
    row(table, "to choose", std::to_string(run.size()));
    row(table, "row entries", std::to_string(run.sizes().entries));
    const bool looked = run.sizes().longest_row > 0 || run.sizes().entries == 0;
    row(table, "longest row",
        looked ? std::to_string(run.sizes().longest_row) : "not read; the memory is a least");
    row(table, "ranks", std::to_string(run.context().world.size()));
    row(table, "bounding", to_string(options.bounding));
    row(table, "partitions",
        std::to_string(options.partitions) +
            (options.adaptive ? " in the first round, then fewer" : ""));
    row(table, "rounds", std::to_string(options.partitions == 1 ? 1 : options.rounds));
    const auto terms = [&](const std::vector<MemoryPlan::Term>& some, const std::string& when) {
        for (const auto& [name, bytes] : some) row(table, name + when, bytes_text(bytes));
    };
    terms(run.plan().always, "");
    terms(run.plan().bounding, ", first");
    terms(run.plan().greedy, ", then");
    if (options.certificate_steps > 0) terms(run.plan().certificate, ", last");
    row(table, "memory per rank", bytes_text(run.plan().total()));
    if (run.plan().disk_bytes > 0) {
        row(table, "files without names, per rank", "about " + bytes_text(run.plan().disk_bytes));
    }
    std::printf("%s", table.text().c_str());
}

void print_selection(const SelectRunArguments& arguments, const SelectionRun& run) {
    const SelectSamplesOptions& options = arguments.options;
    const SelectionProgress& progress = run.selection().progress();
    const BoundingReport& bounding = progress.bounding;
    TextTable table;
    row(table, "samples",
        std::to_string(run.sizes().nodes) + ", without neighbors " +
            std::to_string(run.selection().isolated()));
    row(table, "bounding",
        to_string(options.bounding) + ": " + std::to_string(bounding.selected) + " selected, " +
            std::to_string(bounding.discarded) + " discarded in " +
            counted(std::ssize(bounding.steps), "step"));
    for (const RoundReport& round : progress.rounds) {
        row(table, "round " + std::to_string(round.round),
            std::to_string(round.kept) + " of " + std::to_string(round.input) + " kept in " +
                counted(round.parts, "partition") + ", objective " +
                objective_text(round.objective));
    }
    row(table, "objective", objective_text(run.selection().objective()));
    if (run.selection().certificate()) {
        row(table, "certificate", certificate_text(run.selection()));
    }
    row(table, "subset", options.output + ": " + counted(run.size(), "sample"));
    std::printf("%s", table.text().c_str());
}

std::string selection_report(const SelectRunArguments& arguments, const SelectionRun& run,
                             const SelectRunResult& result) {
    const SelectSamplesOptions& options = arguments.options;
    const SelectContext& context = run.context();
    const SelectionProgress& progress = run.selection().progress();
    const BoundingReport& bounding = progress.bounding;
    Json flags = Json::object();
    for (const auto& [flag, value] : deciding_flags(options, run.size())) flags[flag] = value;
    Json steps = Json::array();
    for (const BoundingStep& step : bounding.steps) {
        steps.push_back({{"kind", step.grow ? "grow" : "shrink"},
                         {"threshold", step.threshold},
                         {"count", step.decided}});
    }
    Json rounds = Json::array();
    for (const RoundReport& round : progress.rounds) {
        rounds.push_back({{"round", round.round},
                          {"input", round.input},
                          {"target", round.target},
                          {"partitions", round.parts},
                          {"quota", round.quota},
                          {"kept", round.kept},
                          {"objective", round.objective}});
    }
    Json seconds = Json::object();
    for (const std::string& phase : result.seconds.phases()) {
        seconds[phase] = result.seconds.of(phase);
    }
    Json terms = Json::object();
    terms["always"] = json_of(run.plan().always);
    terms["bounding"] = json_of(run.plan().bounding);
    terms["greedy"] = json_of(run.plan().greedy);
    terms["certificate"] = json_of(run.plan().certificate);
    const Corpus& corpus = context.graph.corpus();
    const Json json{{"vocabpipe_selection", 1},
                    {"inputs",
                     {{"graph", arguments.graph},
                      {"graph_fingerprint", hexadecimal(progress.graph)},
                      {"utility", arguments.utility},
                      {"utility_fingerprint", hexadecimal(progress.utility)}}},
                    {"corpus", {{"data", corpus.data}, {"seq_length", corpus.seq_length}}},
                    {"output", options.output},
                    {"flags", flags},
                    {"ranks", context.world.size()},
                    {"samples", run.sizes().nodes},
                    {"isolated_samples", run.selection().isolated()},
                    {"chosen", run.size()},
                    {"edges", run.sizes().entries / 2},
                    {"longest_row", run.sizes().longest_row},
                    {"bounding",
                     {{"selected", bounding.selected},
                      {"discarded", bounding.discarded},
                      {"left_to_choose", bounding.k_left},
                      {"open", bounding.open},
                      {"steps", steps},
                      {"traffic", json_of(progress.bounding_messages)},
                      {"rejoin_tuples", bounding.rejoin_tuples}}},
                    {"objective_after_bounding", progress.bounded_objective},
                    {"rounds", rounds},
                    {"objective", run.selection().objective()},
                    {"certificate", json_of(run.selection())},
                    {"notes", selection_notes(arguments, run)},
                    {"traffic", json_of(progress.all_messages)},
                    {"memory",
                     {{"limit_bytes", options.memory},
                      {"planned_bytes", run.plan().total()},
                      {"planned_file_bytes", run.plan().disk_bytes},
                      {"peak_bytes", result.used_bytes},
                      {"process_peak_bytes", process_memory().peak},
                      {"planned_terms", terms}}},
                    {"resumed", run.selection().resumed()},
                    {"seconds", seconds}};
    return json_text(json, 1) + "\n";
}

}  // namespace vocabpipe::tool
