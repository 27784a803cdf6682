// SPDX-License-Identifier: Apache-2.0
// vocabpipe select score: utility, embedding and loss of every sample with a saved model.
#include <cstdio>
#include <memory>
#include <string>

#include "src/tool/score/forward_flags.hpp"
#include "src/tool/score/run_forward.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/select/score_samples.hpp"

namespace vocabpipe::tool {

namespace {

using SelectScoreArguments = ForwardArguments<ScoreOptions>;

void score_on(Communicator& world, const ScoreOptions& options) {
    const ScoreTotals totals = score_samples(world, options);
    if (world.rank() != 0) return;
    std::printf(
        "%s: %s, hidden size %lld, mean %s %.6f, mean loss %.6f\n", options.output.c_str(),
        counted(totals.samples, "sample").c_str(), static_cast<long long>(totals.hidden_size),
        std::string(to_string(options.utility)).c_str(), totals.mean_utility, totals.mean_loss);
}

}  // namespace

Command select_score_command() {
    const auto o = std::make_shared<SelectScoreArguments>();
    return comparing_flags(
        {.name = "score",
         .description = "Find the utility, embedding and loss of every sample with a saved model\n"
                        "  vocabpipe select score --load RUN --data-path CORPUS --seq-length 1024\n"
                        "      --output scores.safetensors\n"
                        "  mpirun -np 4 vocabpipe select score ...",
         .flags = {{.flags = {load_flag(o->options),
                              {.names = "--utility",
                               .value = named(&o->options.utility, utility_kind_from),
                               .help = "margin: how unsure the model is between the two likeliest "
                                       "tokens; loss; or perplexity",
                               .unit = "NAME",
                               .choices = {"margin", "loss", "perplexity"}},
                              {.names = "--output",
                               .value = &o->options.output,
                               .help = "File of the scores",
                               .unit = "FILE",
                               .required = true}}},
                   forward_data_flags(o->options),
                   forward_schedule_flags(o->options),
                   launch_flags(o->launch),
                   forward_device_flags(o->device, o->options)},
         .run = [o](const GivenFlags&) { run_forward(*o, score_on); }},
        o->launch);
}

}  // namespace vocabpipe::tool
