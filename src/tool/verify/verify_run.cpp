// SPDX-License-Identifier: Apache-2.0
// vocabpipe verify-run: the losses of a run against those of another trainer.
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "src/support/text_layout.hpp"
#include "src/tool/support/commands.hpp"
#include "src/train/verify/compare_losses.hpp"
#include "src/train/verify/loss_log.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct VerifyRunArguments {
    std::string mine, against;
    std::string column, against_column;  // empty: a usual name
    bool bf16 = false;
    std::optional<double> tolerance;
    std::optional<int64_t> steps;
};

std::string text_of(const LossPair& pair) {
    std::array<char, 160> text;
    std::snprintf(text.data(), text.size(), "%.9g and %.9g, tolerance %.2g", pair.mine.loss,
                  pair.other.loss, pair.tolerance);
    return "step " + std::to_string(pair.mine.step) + ": " + text.data();
}

void verify_run(const VerifyRunArguments& options) {
    const LossComparison found = compare_losses(
        read_loss_log(options.mine, options.column),
        read_loss_log(options.against,
                      options.against_column.empty() ? options.column : options.against_column),
        {.relative = options.tolerance.value_or(default_loss_tolerance(options.bf16)),
         .last_step = options.steps.value_or(INT64_MAX)});
    const std::string files = options.mine + " and " + options.against;
    if (found.steps == 0) {
        throw InputFileError(
            files + ": have no step in common" +
            (options.steps ? " up to --steps " + std::to_string(*options.steps) : std::string()) +
            "; name two logs of the same steps");
    }
    if (found.first) {
        throw Error(ExitCode::wrong_values,
                    files + ": losses differ at " + text_of(*found.first) + "; " +
                        std::to_string(found.differing) + " of " + std::to_string(found.steps) +
                        " steps do; see docs/verification.md for what to look for");
    }
    std::array<char, 64> share;
    std::snprintf(share.data(), share.size(), "%.2g", found.worst->share());
    const std::string line = files + ": losses agree in " + counted(found.steps, "step") +
                             "; nearest to a tolerance, " + share.data() +
                             " of it: " + text_of(*found.worst);
    std::printf("%s\n", wrap_text(line, 4).c_str());
}

}  // namespace

Command verify_run_command() {
    const auto arguments = std::make_shared<VerifyRunArguments>();
    VerifyRunArguments& o = *arguments;
    return {
        .name = "verify-run",
        .description =
            "Compare the losses of a run with those of another trainer; exit with code "
            "7 if they differ by more than rounding",
        .flags = {{.flags = {{.names = "LOG",
                              .value = &o.mine,
                              .help = "Losses of a run: --metrics of train_gpt, its console "
                                      "output, or what --against takes"},
                             {.names = "--against",
                              .value = &o.against,
                              .help = "Losses of the other trainer: its console log with "
                                      "Megatron's lines, JSON lines, CSV, or a number a line",
                              .unit = "LOG",
                              .required = true},
                             {.names = "--column",
                              .value = &o.column,
                              .help = "Name of the losses in both files",
                              .unit = "NAME",
                              .unset = "lm loss, loss, train_loss or train/loss"},
                             {.names = "--against-column",
                              .value = &o.against_column,
                              .help = "Name of the losses in --against",
                              .unit = "NAME",
                              .unset = "as --column"},
                             {.names = "--bf16",
                              .value = &o.bf16,
                              .help = "One of the runs computes in bf16"},
                             {.names = "--tolerance",
                              .value = &o.tolerance,
                              .help = "Relative tolerance of step 1; step n has sqrt(n) times that",
                              .range = at_least(0),
                              .unset = "6.1e-05, or 0.002 with --bf16"},
                             {.names = "--steps",
                              .value = &o.steps,
                              .help = "Compare only steps up to this one",
                              .unit = "STEP",
                              .range = at_least(1),
                              .unset = "all that both have"}}}},
        .run = [arguments](const GivenFlags&) { verify_run(*arguments); }};
}

}  // namespace vocabpipe::tool
