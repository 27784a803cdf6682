// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/plan.hpp"

#include "src/model/router_sums.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/parameter_count.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Published runs took up to 3.7 % more memory than planned (docs/planning.md, "Accuracy").
constexpr double kTight = 0.05;

std::string gib(int64_t bytes) {
    return format("%.2f", static_cast<double>(bytes) / (1 << 30));
}

/// "4 4 4 5 5 5 5 0" as "3x4 4x5 1x0".
std::string layers_text(const std::vector<int>& layers) {
    std::string text;
    for (size_t i = 0; i < layers.size();) {
        size_t end = i;
        while (end < layers.size() && layers[end] == layers[i]) ++end;
        text +=
            (text.empty() ? "" : " ") + std::to_string(end - i) + "x" + std::to_string(layers[i]);
        i = end;
    }
    return text;
}

template <typename Holds>
bool any(const Plan& plan, Holds&& holds) {
    return std::any_of(plan.rows.begin(), plan.rows.end(),
                       [&](const PlanRow& row) { return holds(row.candidate); });
}

bool has_slices(const Candidate& candidate) {
    return candidate.mesh.slices() > 1;
}

template <typename T>
bool varies(const Plan& plan, T Candidate::*what) {
    const T& first = plan.rows.front().candidate.*what;
    return any(plan, [&](const Candidate& c) { return c.*what != first; });
}

/// The links that the best row's axes use.
std::string links_text(const Plan& plan) {
    const Mesh& mesh = plan.rows.front().candidate.mesh;
    std::string text;
    for (const auto& [axis, name] : {std::pair{Axis::tensor, "tensor"},
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

/// Columns for properties that differ between candidates, or are unusual.
struct StepColumns {
    bool mesh = false, experts = false, size = false, recompute = false;
    explicit StepColumns(const Plan& plan)
        : mesh(any(plan, has_slices)),
          experts(any(plan, [](const Candidate& c) { return c.mesh.expert > 1; })),
          size(mesh || varies(plan, &Candidate::micro_batch_size)),
          recompute(varies(plan, &Candidate::recompute)) {}

    [[nodiscard]] std::vector<std::string> heads() const {
        std::vector<std::string> cells;
        if (mesh) cells.insert(cells.end(), {"p", "t", "d"});
        if (experts) cells.emplace_back("e");
        if (size) cells.insert(cells.end(), {"b", "m"});
        if (recompute) cells.emplace_back("recompute");
        return cells;
    }
    [[nodiscard]] std::vector<std::string> cells(const Candidate& candidate) const {
        const Mesh& of = candidate.mesh;
        std::vector<std::string> cells;
        if (mesh) {
            for (const int ranks : {of.pipeline, of.tensor, of.data}) {
                cells.push_back(std::to_string(ranks));
            }
        }
        if (experts) cells.push_back(std::to_string(of.expert));
        if (size) {
            cells.push_back(std::to_string(candidate.micro_batch_size));
            cells.push_back(std::to_string(candidate.microbatches));
        }
        if (recompute) cells.emplace_back(to_string(candidate.recompute));
        return cells;
    }
};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b,
                                const std::vector<std::string>& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
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
    text +=
        format("model    %s: %.2f B parameters, %d layers, hidden %lld, V %lld%s\n",
               o.model.name.c_str(), static_cast<double>(parameter_count(config)) * 1e-9,
               config.num_layers, static_cast<long long>(config.hidden_size),
               static_cast<long long>(config.vocab_size), config.tied ? ", tied embeddings" : "");
    if (config.moe.experts > 0) {
        text += format(
            "         %lld experts in %zu layers, %lld per token, %.2f B parameters active; ",
            static_cast<long long>(config.moe.experts), routed_layers(config).size(),
            static_cast<long long>(config.moe.top_k),
            static_cast<double>(active_parameter_count(config)) * 1e-9);
        text += any(plan, [](const Candidate& c) { return c.mesh.expert > 1; })
                    ? format(
                          "of ranks that share a layer's, the fullest has %.2f times the mean "
                          "rows (assumed)\n",
                          o.moe_imbalance)
                    : "all of a layer on one GPU\n";
    }
    const double memory = o.memory_gib > 0 ? o.memory_gib : o.device.memory_gib.value;
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
    const Candidate& best = plan.rows.front().candidate;
    const bool shared = any(plan, has_slices);
    text +=
        format("step     %lld sequences of %lld tokens",
               static_cast<long long>(o.global_batch_size), static_cast<long long>(o.seq_length));
    if (!shared && !varies(plan, &Candidate::micro_batch_size)) {
        text += format(", %d microbatches of %lld; pipeline parallel over all GPUs",
                       best.microbatches, static_cast<long long>(best.micro_batch_size));
    }
    text += "\n";
    if (any(plan, [](const Candidate& c) { return c.recompute != Recompute::none; })) {
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

/// Schedules and times of the best rows, with the columns of `steps` unless null.
std::string times_text(const Plan& plan, size_t shown, const StepColumns* steps) {
    TextTable times;
    const std::vector<std::string> none;
    times.row(joined({"", "schedule", "vocab mode", "v"}, steps ? steps->heads() : none,
                     {"step ms", "tokens/s", "MFU %", "bubble %"}),
              {false, true, true});
    for (size_t i = 0; i < shown; ++i) {
        const PlanRow& row = plan.rows[i];
        times.row(joined({std::to_string(i + 1), schedule_text(row.candidate),
                          std::string(to_string(row.candidate.vocab_mode)),
                          std::to_string(row.candidate.chunks)},
                         steps ? steps->cells(row.candidate) : none,
                         {format("%.1f", static_cast<double>(row.step_ns) * 1e-6),
                          format("%.0f", row.tokens_per_second),
                          plan.options.profile ? "-" : format("%.2f", 100 * row.mfu),
                          format("%.2f", 100 * row.bubble)}));
    }
    return times.text();
}

/// The columns of a step in a separate table, where they do not fit next to the times.
std::string steps_text(const Plan& plan, size_t shown, const StepColumns& steps) {
    const std::string together = times_text(plan, shown, &steps);
    if (together.find('\n') <= kTextWidth) return together;
    TextTable table;
    table.row(joined({""}, steps.heads(), {}));
    for (size_t i = 0; i < shown; ++i) {
        table.row(joined({std::to_string(i + 1)}, steps.cells(plan.rows[i].candidate), {}));
    }
    return times_text(plan, shown, nullptr) + "\n" + table.text();
}

std::string rows_text(const Plan& plan, size_t rows) {
    const size_t shown = std::min(rows, plan.rows.size());
    const StepColumns steps(plan);
    TextTable memory;
    memory.row({"", "rank", "weights", "grads", "optim", "activ", "vocab", "comm", "total", "spare",
                "layers"},
               {false, false, false, false, false, false, false, false, false, false, true});
    for (size_t i = 0; i < shown; ++i) {
        const PlanRow& row = plan.rows[i];
        const PlannedMemory& worst = row.worst;
        memory.row({std::to_string(i + 1), std::to_string(worst.rank), gib(worst.weights),
                    gib(worst.gradients), gib(worst.optimizer), gib(worst.activations),
                    gib(worst.vocabulary), gib(worst.communication), gib(worst.total()),
                    gib(row.spare_bytes), layers_text(row.candidate.layers_per_stage)});
    }
    std::string text = steps_text(plan, shown, steps);
    text +=
        "\n" +
        wrap_text(format("Layers by stage, and GiB of the rank that needs most; total includes "
                         "%.2f GiB reserve (%s); spare below 0 means too little memory:",
                         plan.options.device.reserve_gib.value,
                         std::string(to_string(plan.options.device.reserve_gib.basis)).c_str())) +
        "\n" + memory.text() + "\n";
    const auto fitting = std::count_if(plan.rows.begin(), plan.rows.end(),
                                       [](const PlanRow& row) { return row.fits(); });
    text += format("%zu of %zu candidates shown, %lld fit.\n", shown, plan.rows.size(),
                   static_cast<long long>(fitting));
    if (fitting == 0) {
        text += wrap_text(
                    "Nothing fits. Recomputation (--recompute-granularity), a smaller "
                    "--micro-batch-size, tensor or expert ranks (--tensor-model-parallel-size, "
                    "--expert-model-parallel-size) or more GPUs need less memory.") +
                "\n";
    }
    const double all = plan.options.memory_gib > 0 ? plan.options.memory_gib
                                                   : plan.options.device.memory_gib.value;
    const auto tight = std::count_if(plan.rows.begin(), plan.rows.end(), [&](const PlanRow& row) {
        return row.fits() &&
               static_cast<double>(row.spare_bytes) < kTight * all * static_cast<double>(1 << 30);
    });
    if (tight > 0) {
        text += wrap_text(format("%lld of these have less than %.0f %% of the memory to spare and "
                                 "may run out.",
                                 static_cast<long long>(tight), 100 * kTight)) +
                "\n";
    }
    const int empty =
        static_cast<int>(std::count(plan.rows.front().candidate.layers_per_stage.begin(),
                                    plan.rows.front().candidate.layers_per_stage.end(), 0));
    if (empty > 0) {
        text += format("%d stage%s of the best row hold%s no transformer layer.\n", empty,
                       empty == 1 ? "" : "s", empty == 1 ? "s" : "");
    }
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
            change[k] = format(
                "%+.2f %%",
                100 * (static_cast<double>(s.step_ns) / static_cast<double>(best.step_ns) - 1));
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

std::string imbalance_text(const Plan& plan) {
    if (plan.imbalance.empty()) return {};
    const PlanRow& best = plan.rows.front();
    std::string text = "\nIf the fullest rank had more of the experts' rows:\n";
    TextTable table;
    table.row({"times the mean", "step", "winner"}, {true, false, true});
    for (const Sensitivity& s : plan.imbalance) {
        const bool worst = &s == &plan.imbalance.back();
        table.row(
            {format(worst ? "%.2f (all tokens to one rank)" : "%.2f", s.factor),
             format("%+.2f %%",
                    100 * (static_cast<double>(s.step_ns) / static_cast<double>(best.step_ns) - 1)),
             s.best_row == 0 ? "same" : to_string(plan.rows[s.best_row].candidate)});
    }
    return text + table.text();
}

std::string skipped_text(const Plan& plan) {
    std::map<std::string, std::pair<int, std::set<std::string>>> by_reason;
    for (const auto& [candidate, reason] : plan.skipped) {
        auto& [count, schedules] = by_reason[reason];
        ++count;
        schedules.insert(candidate.schedule.empty() ? mesh_text(candidate.mesh)
                                                    : candidate.schedule);
    }
    std::string text;
    for (const auto& [reason, entry] : by_reason) {
        text += format("skipped %d: ", entry.first);
        std::string names;
        for (const std::string& name : entry.second) names += (names.empty() ? "" : ", ") + name;
        text += names + ": " + reason + "\n";
    }
    return text;
}

}  // namespace

std::string plan_text(const Plan& plan, size_t rows) {
    return wrap_text(head(plan), 9) + "\n" + rows_text(plan, rows) +
           wrap_text(skipped_text(plan), 2) + sensitivity_text(plan) + imbalance_text(plan);
}

}  // namespace vocabpipe
