// SPDX-License-Identifier: Apache-2.0
// What a reader does with a plan: the command of a row; if nothing fits, what would.
#include "src/plan/report_parts.hpp"

#include "src/plan/candidates.hpp"
#include "src/support/text_layout.hpp"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

/// "12.3 % less time".
std::string change_text(double ratio, const char* more, const char* less, const char* of) {
    return format("%.1f %% %s %s", 100 * std::abs(ratio - 1), ratio < 1 ? less : more, of);
}

/// "row 3 (1f1b one_barrier front v=1)".
std::string row_text(const Plan& plan, size_t row) {
    return "row " + std::to_string(row + 1) + " (" + to_string(plan.rows[row].candidate) + ")";
}

/// Where the next flag of a command begins, with its blank; its end if none does. Quoted words may
/// hold anything.
size_t next_flag(const std::string& command, size_t at) {
    bool quoted = false;
    for (size_t i = at; i < command.size(); ++i) {
        if (command[i] == '\'') quoted = !quoted;
        if (quoted) continue;
        if (command[i] == '\\') ++i;  // what is escaped outside of quotes
        if (i > at && command.compare(i, 3, " --") == 0) return i;
    }
    return command.size();
}

/// A command on lines of a terminal, each but the last with a backslash. Flags stay with their
/// values.
std::string shell_lines(const std::string& command) {
    constexpr size_t kWidth = kTextWidth - 2;  // a blank and the backslash
    std::string text, line = "    ";
    for (size_t at = 0; at < command.size();) {
        const size_t end = next_flag(command, at);
        const size_t blank = command[at] == ' ' ? 1 : 0;
        if (line.size() + end - at > kWidth) {
            text += line + " \\\n";
            line = std::string(8, ' ') + command.substr(at + blank, end - at - blank);
        } else {
            line += command.substr(at, end - at);
        }
        at = end;
    }
    return text + line + "\n";
}

}  // namespace

std::string nothing_fits_text(const Plan& plan) {
    const PlanRow& nearest = plan.rows.front();
    if (nearest.fits()) return {};
    std::string text = format(
        "Nothing fits into %.2f GiB. The nearest row, %s, needs %s GiB on rank %d: it lacks %s "
        "GiB.",
        plan.options.gpu_memory_gib(), to_string(nearest.candidate).c_str(),
        gib_text(nearest.worst.total()).c_str(), nearest.worst.rank,
        gib_text(-nearest.spare_bytes).c_str());
    if (plan.remedies.empty()) {
        text +=
            " No change of one option needs less: neither more recomputation, smaller "
            "microbatches, more tensor or expert ranks nor more GPUs.";
        return wrap_text(text) + "\n\n";
    }
    text += " With a change of the command it would need:";
    TextTable table;
    table.row({"change", "ranks", "GiB", "spare GiB", ""}, {true, true, false, false, true});
    for (const Remedy& remedy : plan.remedies) {
        table.row({remedy.flags, mesh_text(remedy.row.candidate),
                   gib_text(remedy.row.worst.total()), gib_text(remedy.row.spare_bytes),
                   remedy.row.fits() ? "fits" : ""});
    }
    return wrap_text(text) + "\n\n" + table.text() + "\n";
}

std::string vocabulary_text(const Plan& plan) {
    const std::optional<VocabularyGain> gain = vocabulary_gain(plan);
    if (!gain) return {};
    const std::string memory =
        change_text(gain->memory_ratio, "more", "less", "memory on the fullest rank");
    std::string text;
    if (!plan.rows[gain->without].fits()) {
        text = "Vocabulary parallelism makes it fit: without it nothing does. The nearest, " +
               row_text(plan, gain->without) + ", lacks " +
               gib_text(-plan.rows[gain->without].spare_bytes) + " GiB.";
    } else if (gain->step_ratio < 1) {
        text = "Vocabulary parallelism pays: its best, " + row_text(plan, gain->with) + ", takes " +
               change_text(gain->step_ratio, "more", "less", "time") + " and " + memory +
               " than the best without, " + row_text(plan, gain->without) + ".";
    } else {
        text = "Vocabulary parallelism does not pay here: its best, " + row_text(plan, gain->with) +
               ", takes " + change_text(gain->step_ratio, "more", "less", "time") + " and " +
               memory + " than the best without, " + row_text(plan, gain->without) + ".";
    }
    return wrap_text(text) + "\n";
}

std::string command_text(const Plan& plan, size_t row) {
    const Candidate& candidate = plan.rows[row].candidate;
    const std::string line = train_command(plan.options, candidate);
    std::string text = format("\nTo train row %zu%s:\n\n", row + 1,
                              plan.rows[row].fits() ? "" : ", which does not fit") +
                       shell_lines(line) + "\n";
    std::string notes = "PREFIX: your tokens, of vocabpipe data prepare.";
    if (line.find(" HOSTS ") != std::string::npos) {
        notes += format(" HOSTS: a file with a line \"name slots=%.0f\" for each node.",
                        plan.options.device.gpus_per_node.value);
    }
    PlannedTrainer own;  // what train_gpt does
    own.reduction = GradientReduction::all_to_all;
    own.kernels = plan.options.trainer.kernels;
    own.blocking_exchanges = plan.options.trainer.blocking_exchanges;
    own.exchange_percent = plan.options.trainer.exchange_percent;
    const bool copied = candidate.mesh.size_of(Axis::data) > 1;
    if (!plan.options.profile && copied && plan.options.trainer != own) {
        notes +=
            " train_gpt adds up gradients in fp32 by --gradient-reduction all_to_all: plan with "
            "it for this run's times.";
    }
    if (own.exchange_percent > 0 && hides_exchanges(candidate)) {
        notes +=
            " On GPUs train_gpt runs the passes of a pair one after the other: plan without "
            "--exchange-percent for this run's times.";
    }
    if (plan.options.profile) {
        notes +=
            " A profile does not record the family of its model: the flags are those of a GPT.";
    }
    return text + wrap_text(notes) + "\n";
}

}  // namespace vocabpipe
