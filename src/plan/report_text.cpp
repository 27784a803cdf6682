// SPDX-License-Identifier: Apache-2.0
#include "src/model/router_sums.hpp"
#include "src/plan/report_parts.hpp"
#include "src/support/joined.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/parameter_count.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// The links that the best row's axes use.
std::string links_text(const Plan& plan) {
    const Mesh& mesh = plan.rows.front().candidate.mesh;
    std::string text;
    for (const auto& [axis, name] : {std::pair{Axis::tensor, "tensor"},
                                     {Axis::context, "context"},
                                     {Axis::expert, "expert"},
                                     {Axis::data, "data"},
                                     {Axis::pipeline, "pipeline"}}) {
        const int members = axis == Axis::pipeline ? mesh.pipeline : mesh.size_of(axis);
        if (members == 1) continue;
        text += text.empty() ? "links    of the best row: " : ", ";
        text += std::string(name) + (spans_nodes(plan.options.device, mesh, axis)
                                         ? " ranks between nodes"
                                         : " ranks inside a node");
    }
    return text.empty() ? text : text + "\n";
}

/// The step under a varied assumption against that of the best row: "+0.36 %", never "-0.00 %".
std::string change_text(const Sensitivity& varied, const PlanRow& best) {
    const double ratio = static_cast<double>(varied.step_ns) / static_cast<double>(best.step_ns);
    return format("%+.2f %%", std::round(1e4 * (ratio - 1)) / 100 + 0.0);
}

/// How the times were found, and what a search left out.
std::string times_line(const Plan& plan) {
    const PlanSearch& search = plan.search;
    std::string text = "times    ";
    if (plan.evaluation == Evaluation::simulation) {
        text += "simulation of the lowered programs\n";
    } else if (plan.evaluation == Evaluation::pass_times) {
        text += "pass times (collectives cost their latency and do not queue)\n";
    } else if (!search.complete) {
        text += format("search: of %zu candidates, %zu were timed and %zu simulated\n",
                       search.candidates, search.timed, search.simulated);
    } else {
        text += format(
            "search: of %zu candidates, %zu were timed and the best %zu simulated; by lower bounds "
            "%zu are slower and %zu do not fit\n",
            search.candidates, search.timed, search.simulated, search.slower, search.too_large);
    }
    if (!search.complete) text += "         interrupted: the rows are those so far\n";
    return text;
}

std::string head(const Plan& plan) {
    const PlanOptions& o = plan.options;
    std::string text;
    const ModelConfig& config = o.model.config;
    text += format(
        "model    %s: %.2f B parameters, %d layers%s, hidden %lld, V %lld%s\n",
        o.model.name.c_str(), static_cast<double>(parameter_count(config)) * 1e-9,
        config.num_layers,
        config.mtp_num_layers > 0
            ? (" and " + counted(config.mtp_num_layers, "depth") + " of multi-token prediction")
                  .c_str()
            : "",
        static_cast<long long>(config.hidden_size), static_cast<long long>(config.vocab_size),
        config.tied ? ", tied embeddings" : "");
    if (config.moe.experts > 0) {
        text += format(
            "         %lld experts in %zu layers, %lld per token, %.2f B parameters active; ",
            static_cast<long long>(config.moe.experts), routed_layers(config).size(),
            static_cast<long long>(config.moe.top_k),
            static_cast<double>(active_parameter_count(config)) * 1e-9);
        text += any_candidate(plan, [](const Candidate& c) { return c.mesh.expert > 1; })
                    ? format(
                          "of ranks that share a layer's, the fullest has %.2f times the mean "
                          "rows (assumed)\n",
                          o.moe_imbalance)
                    : "all of a layer on one GPU\n";
    }
    if (!o.frozen.empty()) {
        text += format("         %.2f B parameters trained, the others frozen\n",
                       static_cast<double>(trained_parameter_count(o)) * 1e-9);
    }
    const double memory = o.gpu_memory_gib();
    if (o.profile) {
        text += format(
            "machine  %d ranks as profiled on %.60s (%.60s), %.2f GiB each; peak unknown, so no "
            "MFU\n",
            o.gpus, o.profile->host.c_str(), o.profile->device.c_str(), memory);
    } else {
        text +=
            format("machine  %d x %s, %.0f per node, %.2f GiB each; MFU of %.1f TFLOP/s (dense)\n",
                   o.gpus, o.device.name.c_str(), o.device.gpus_per_node.value, memory,
                   o.device.peak_tflops.value);
    }
    if (!o.profile) text += "trainer  " + to_string(o.trainer) + "\n";
    const Candidate& best = plan.rows.front().candidate;
    const bool shared = any_candidate(plan, has_slices);
    text +=
        format("step     %lld sequences of %lld tokens",
               static_cast<long long>(o.global_batch_size), static_cast<long long>(o.seq_length));
    if (!shared && !varies(plan, &Candidate::micro_batch_size)) {
        text += format(", %d microbatches of %lld; pipeline parallel over all GPUs",
                       best.microbatches, static_cast<long long>(best.micro_batch_size));
    }
    text += "\n";
    if (any_candidate(plan, [](const Candidate& c) { return c.recompute != Recompute::none; })) {
        text += "         ";
        if (!varies(plan, &Candidate::recompute))
            text += std::string(to_string(best.recompute)) + " ";
        text += "recomputation before every backward";
        text += o.profile ? "\n" : ", whose FLOPs do not count in MFU\n";
    }
    if (shared && !o.profile) text += links_text(plan);
    text += times_line(plan);
    return text;
}

std::string sensitivity_text(const Plan& plan) {
    if (plan.sensitivity.empty()) return {};
    const PlanRow& best = plan.rows.front();
    std::string text =
        "\nIf an efficiency were 10 % lower or higher (step of the best row; the winner\n"
        "among the first rows):\n";
    TextTable table;
    table.row({"efficiency", "basis", "-10 %", "+10 %", "winner"},
              {true, true, false, false, true});
    bool stays = true;
    for (size_t i = 0; i + 1 < plan.sensitivity.size(); i += 2) {
        const Sensitivity* pair[] = {&plan.sensitivity[i], &plan.sensitivity[i + 1]};
        std::string winner = "same";
        std::string change[2];
        for (int k = 0; k < 2; ++k) {
            const Sensitivity& s = *pair[k];
            change[k] = change_text(s, best);
            if (s.best_row == 0) continue;
            stays = false;
            winner = (winner == "same" ? "" : winner + "; ") +
                     format("%+.0f %%: ", 100 * (s.factor - 1)) +
                     to_string(plan.rows[s.best_row].candidate) +
                     format(" (%.2f %% ahead)", 100 * (static_cast<double>(s.step_ns) /
                                                           static_cast<double>(s.best_step_ns) -
                                                       1));
        }
        table.row({std::string(pair[0]->figure), std::string(to_string(pair[0]->basis)), change[0],
                   change[1], winner});
    }
    text += table.text();
    if (stays) text += "The winner does not change.\n";
    return text;
}

/// "640 of 128, 24 of 512"
std::string counts_text(const std::vector<LengthCount>& counts) {
    std::string text;
    for (const LengthCount& of_length : counts) {
        if (of_length.count == 0) continue;
        text += (text.empty() ? "" : ", ") + std::to_string(of_length.count) + " of " +
                std::to_string(of_length.length);
    }
    return text;
}

std::string lengths_text(const Plan& plan) {
    if (plan.lengths.empty()) return {};
    std::string text =
        "\n" +
        wrap_text(
            "Documents of the given lengths, in tokens with a label per second: padded to " +
            std::to_string(plan.options.seq_length) +
            " tokens, packed into full sequences, and by length, a step and replica having the "
            "microbatches of the last column:") +
        "\n";
    TextTable table;
    table.row({"row", "padded", "packed", "by length", "microbatches"},
              {false, false, false, false, true});
    for (size_t row = 0; row < plan.lengths.size(); ++row) {
        const LengthPlan& lengths = plan.lengths[row];
        table.row({std::to_string(row + 1), format("%.0f", lengths.padded),
                   format("%.0f", lengths.packed), format("%.0f", lengths.by_length),
                   counts_text(lengths.microbatches)});
    }
    return text + table.text();
}

std::string imbalance_text(const Plan& plan) {
    if (plan.imbalance.empty()) return {};
    const PlanRow& best = plan.rows.front();
    std::string text = "\nIf the fullest rank had more of the experts' rows:\n";
    TextTable table;
    table.row({"times the mean", "step", "winner"}, {true, false, true});
    for (const Sensitivity& s : plan.imbalance) {
        const bool worst = &s == &plan.imbalance.back();
        table.row({format(worst ? "%.2f (all tokens to one rank)" : "%.2f", s.factor),
                   change_text(s, best),
                   s.best_row == 0 ? "same" : to_string(plan.rows[s.best_row].candidate)});
    }
    return text + table.text();
}

std::string skipped_text(const Plan& plan) {
    std::map<std::string, std::pair<int, std::set<std::string>>> by_reason;
    for (const auto& [candidate, reason] : plan.skipped) {
        auto& [count, schedules] = by_reason[reason];
        ++count;
        schedules.insert(candidate.schedule.empty() ? mesh_text(candidate) : candidate.schedule);
    }
    std::string text;
    for (const auto& [reason, entry] : by_reason) {
        text += format("skipped %d: ", entry.first);
        text += joined(entry.second) + ": " + reason + "\n";
    }
    return text;
}

}  // namespace

std::string plan_text(const Plan& plan, size_t rows, std::optional<size_t> command) {
    std::string text = nothing_fits_text(plan);
    const bool fits = text.empty();
    text += wrap_text(head(plan), 9) + "\n" + rows_text(plan, rows) + vocabulary_text(plan);
    if (fits || command) text += command_text(plan, command.value_or(0));
    const std::string skipped = wrap_text(skipped_text(plan), 2);
    if (!skipped.empty()) text += "\n" + skipped;
    // What cannot run has no step to vary.
    return fits ? text + lengths_text(plan) + sensitivity_text(plan) + imbalance_text(plan) : text;
}

}  // namespace vocabpipe
