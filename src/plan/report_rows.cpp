// SPDX-License-Identifier: Apache-2.0
#include "src/plan/report_parts.hpp"

#include "src/support/text_layout.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

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

/// What is left of the memory, with a mark where that is little.
std::string spare_text(const PlanOptions& options, const PlanRow& row) {
    return (is_tight(options, row) ? "*" : "") +
           format("%.1f", static_cast<double>(row.spare_bytes) / (1 << 30));
}

/// Columns for properties that differ between candidates, or are unusual.
struct StepColumns {
    bool mesh = false, context = false, experts = false, expert_parts = false, size = false;
    bool recompute = false, reshard = false;
    explicit StepColumns(const Plan& plan)
        : mesh(any_candidate(plan, has_slices)),
          context(any_candidate(plan, [](const Candidate& c) { return c.mesh.context > 1; })),
          experts(any_candidate(plan, [](const Candidate& c) { return c.mesh.expert > 1; })),
          expert_parts(any_candidate(plan, [](const Candidate& c) { return c.expert_tensor > 1; })),
          size(mesh || varies(plan, &Candidate::micro_batch_size)),
          recompute(varies(plan, &Candidate::recompute)),
          reshard(any_candidate(plan, [](const Candidate& c) { return c.zero.stage > 1; })) {}

    [[nodiscard]] std::vector<std::string> heads() const {
        std::vector<std::string> cells;
        if (mesh) cells.insert(cells.end(), {"p", "t"});
        if (context) cells.emplace_back("C");
        if (mesh) cells.emplace_back("d");
        if (experts) cells.emplace_back("e");
        if (expert_parts) cells.emplace_back("x");
        if (size) cells.insert(cells.end(), {"b", "m"});
        if (recompute) cells.emplace_back("recompute");
        if (reshard) cells.insert(cells.end(), {"reshard", "ahead"});
        return cells;
    }
    [[nodiscard]] std::vector<std::string> cells(const Candidate& candidate) const {
        const Mesh& of = candidate.mesh;
        std::vector<std::string> cells;
        if (mesh) {
            cells.push_back(std::to_string(of.pipeline));
            cells.push_back(std::to_string(of.tensor));
        }
        if (context) cells.push_back(std::to_string(of.context));
        if (mesh) cells.push_back(std::to_string(of.data));
        if (experts) cells.push_back(std::to_string(candidate.expert_groups()));
        if (expert_parts) cells.push_back(std::to_string(candidate.expert_tensor));
        if (size) {
            cells.push_back(std::to_string(candidate.micro_batch_size));
            cells.push_back(std::to_string(candidate.microbatches));
        }
        if (recompute) cells.emplace_back(to_string(candidate.recompute));
        if (reshard) {
            cells.emplace_back(to_string(candidate.zero.reshard_after));
            cells.push_back(std::to_string(candidate.zero.gather_ahead));
        }
        return cells;
    }
};

std::vector<std::string> concatenated(std::vector<std::string> a, const std::vector<std::string>& b,
                                      const std::vector<std::string>& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
}

/// Schedules and times of the best rows, with the columns of `steps` unless null. Tokens per second
/// say the same as the step, so that they may be left out.
std::string times_text(const Plan& plan, size_t shown, const StepColumns* steps, bool tokens) {
    TextTable times;
    const auto step_cells = [&](const auto& of) {
        return steps ? of(*steps) : std::vector<std::string>();
    };
    const auto with_tokens = [&](std::vector<std::string> cells, std::string text) {
        if (tokens) cells.insert(cells.begin() + 1, std::move(text));
        return cells;
    };
    times.row(concatenated({"", "schedule", "vocab mode", "v"},
                           step_cells([](const StepColumns& s) { return s.heads(); }),
                           with_tokens({"step ms", "MFU %", "bubble", "spare"}, "tokens/s")),
              {false, true, true});
    for (size_t i = 0; i < shown; ++i) {
        const PlanRow& row = plan.rows[i];
        times.row(concatenated(
            {std::to_string(i + 1), schedule_text(row.candidate),
             std::string(to_string(row.candidate.vocab_mode)),
             std::to_string(row.candidate.chunks)},
            step_cells([&](const StepColumns& s) { return s.cells(row.candidate); }),
            with_tokens({format("%.1f", static_cast<double>(row.step_ns) * 1e-6),
                         plan.options.profile ? "-" : format("%.2f", 100 * row.mfu),
                         format("%.2f", 100 * row.bubble), spare_text(plan.options, row)},
                        format("%.0f", row.tokens_per_second))));
    }
    return times.text();
}

/// The columns of a step in a separate table, where they do not fit next to the times.
std::string steps_text(const Plan& plan, size_t shown, const StepColumns& steps) {
    for (const bool tokens : {true, false}) {
        const std::string together = times_text(plan, shown, &steps, tokens);
        if (together.find('\n') <= kTextWidth) return together;
    }
    TextTable table;
    table.row(concatenated({""}, steps.heads(), {}));
    for (size_t i = 0; i < shown; ++i) {
        table.row(concatenated({std::to_string(i + 1)}, steps.cells(plan.rows[i].candidate), {}));
    }
    return times_text(plan, shown, nullptr, true) + "\n" + table.text();
}

/// Memory of the fullest rank, by purpose.
std::string memory_text(const Plan& plan, size_t shown) {
    TextTable memory;
    memory.row(
        {"", "rank", "weights", "grads", "optim", "activ", "vocab", "comm", "total", "layers"},
        {false, false, false, false, false, false, false, false, false, true});
    for (size_t i = 0; i < shown; ++i) {
        const PlanRow& row = plan.rows[i];
        const PlannedMemory& worst = row.worst;
        memory.row({std::to_string(i + 1), std::to_string(worst.rank), gib_text(worst.weights),
                    gib_text(worst.gradients), gib_text(worst.optimizer),
                    gib_text(worst.activations), gib_text(worst.vocabulary),
                    gib_text(worst.communication), gib_text(worst.total()),
                    layers_text(row.candidate.layers_per_stage)});
    }
    const Figure& reserve = plan.options.device.reserve_gib;
    return wrap_text(format(
               "Bubble in %%. In GiB: spare above, and the memory of the rank that needs most; "
               "total includes %.2f reserve (%s). Layers by stage:",
               reserve.value, std::string(to_string(reserve.basis)).c_str())) +
           "\n" + memory.text();
}

/// How many rows there are, and what the first table does not show.
std::string counts_text(const Plan& plan, size_t shown, size_t fitting) {
    const std::vector<PlanRow>& rows = plan.rows;
    if (fitting == 0) {
        return format("%zu of %s shown, none fits; the nearest come first.", shown,
                      counted(std::ssize(rows), "row").c_str());
    }
    std::string text =
        format("%zu of %s shown.", shown,
               counted(static_cast<int64_t>(fitting), "row that fits", "rows that fit").c_str());
    if (fitting < rows.size()) {
        const PlanRow& nearest = rows[fitting];
        text += format(
            " %s not fit; the nearest, %s, lacks %s GiB.",
            counted(static_cast<int64_t>(rows.size() - fitting), "other does", "others do").c_str(),
            to_string(nearest.candidate).c_str(), gib_text(-nearest.spare_bytes).c_str());
    }
    return text;
}

}  // namespace

std::string gib_text(int64_t bytes) {
    return format("%.2f", static_cast<double>(bytes) / (1 << 30));
}

std::string rows_text(const Plan& plan, size_t rows) {
    const std::vector<PlanRow>& all = plan.rows;
    const auto fitting = static_cast<size_t>(
        std::ranges::count_if(all, [](const PlanRow& row) { return row.fits(); }));
    const size_t shown = std::min(rows, fitting > 0 ? fitting : all.size());
    const std::span shown_rows = std::span(all).first(shown);
    std::string text = steps_text(plan, shown, StepColumns(plan)) + "\n" +
                       memory_text(plan, shown) + "\n" +
                       wrap_text(counts_text(plan, shown, fitting)) + "\n";
    if (std::ranges::any_of(shown_rows,
                            [&](const PlanRow& row) { return is_tight(plan.options, row); })) {
        text += wrap_text(format("* Less than %.0f %% of the memory to spare: such a run may run "
                                 "out of memory.",
                                 100 * kTightShare)) +
                "\n";
    }
    const auto empty = std::ranges::count(all.front().candidate.layers_per_stage, 0);
    if (empty > 0) {
        text += format("%s of the best row hold%s no transformer layer.\n",
                       counted(empty, "stage").c_str(), empty == 1 ? "s" : "");
    }
    return text;
}

}  // namespace vocabpipe
