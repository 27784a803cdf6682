// SPDX-License-Identifier: Apache-2.0
// vocabpipe select score: utility, embedding and loss of every sample with a saved model.
#include <cstdio>
#include <memory>
#include <string>

#include "src/tool/data/data_flags.hpp"
#include "src/tool/launch/devices.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/options/train_flags.hpp"
#include "src/train/select/score_samples.hpp"

namespace vocabpipe::tool {

namespace {

struct SelectScoreArguments {
    ScoreOptions options;
    std::string device = "host";
    Launch launch{.transport = started_by_mpirun() ? "mpi" : "threads"};
};

void score_on(Communicator& world, const SelectScoreArguments& o) {
    PhaseProgress progress(world.rank() == 0);
    ScoreOptions options = o.options;
    options.make_device = device_factory(o.device, o.launch.ranks_are_threads());
    options.ending_signal = ending_signal;
    options.progress = [&](int64_t done, int64_t all) { progress.show("scoring", done, all); };
    const ScoreTotals totals = score_samples(world, options);
    progress.clear();
    if (world.rank() != 0) return;
    std::printf(
        "%s: %s, hidden size %lld, mean %s %.6f, mean loss %.6f\n", options.output.c_str(),
        counted(totals.samples, "sample").c_str(), static_cast<long long>(totals.hidden_size),
        std::string(to_string(options.utility)).c_str(), totals.mean_utility, totals.mean_loss);
}

void select_score(SelectScoreArguments& o) {
    if (o.launch.ranks_are_threads() && !o.launch.ranks) o.launch.ranks = 1;
    check_launch(o.launch);
    install_run_signals(o.launch.exit_signal);
    const int code =
        run_ranks("vocabpipe", o.launch, [&](Communicator& world) { score_on(world, o); });
    if (code != 0) throw Reported{code};
}

std::vector<Flag> score_schedule_flags(ScoreOptions& o) {
    return {{.names = "--pipeline-model-parallel-size",
             .value = &o.pipeline,
             .help = "Ranks of one pipeline; the others are replicas",
             .range = at_least(1),
             .unset = "all ranks",
             .absent = 0},
            {.names = "--schedule",
             .value = &o.schedule,
             .help = "Where stages are placed, by the name of a schedule of training",
             .unit = "NAME",
             .choices = schedule_names()},
            {.names = "--chunks",
             .value = &o.chunks,
             .help = "Stages per rank",
             .range = at_least(1),
             .unset = "the schedule's own",
             .absent = 0},
            {.names = "--vocab-mode",
             .value = FlagText{
                 .set = [&o](const auto& words) { o.vocab_mode = vocab_mode_from(words.back()); },
                 .get = [&o] { return std::string(to_string(o.vocab_mode)); }},
             .help = "How the vocabulary is divided among the ranks",
             .unit = "MODE",
             .choices = vocab_mode_names()},
            {.names = "--micro-batch-size",
             .value = &o.micro_batch_size,
             .help = "Samples of a microbatch",
             .range = between(1, kLargestSize)}};
}

}  // namespace

Command select_score_command() {
    const auto o = std::make_shared<SelectScoreArguments>();
    std::vector<Flag> data = training_data_flags(o->options.data);
    data.push_back({.names = "--seq-length",
                    .value = &o->options.seq_length,
                    .help = "Tokens of a sample, as the run that trains on some of them has it",
                    .range = between(1, kLargestSize),
                    .absent = 0,
                    .required = true});
    data.push_back({.names = "--eod-token-id",
                    .value = &o->options.data.eod_token_id,
                    .help = "ID of the token that ends a document",
                    .unit = "ID",
                    .range = at_least(0),
                    .unset = "from the data",
                    .absent = -1});
    data.push_back({.names = "--eod-mask-loss",
                    .value = &o->options.data.eod_mask_loss,
                    .help = "Do not count positions whose input ends a document"});
    data.push_back({.names = "--reset-attention-mask",
                    .value = &o->options.data.reset_attention_mask,
                    .help = "Restrict attention to tokens of the same document"});
    data.push_back({.names = "--reset-position-ids",
                    .value = &o->options.data.reset_position_ids,
                    .help = "Count learned positions from the beginning of the document"});
    return comparing_flags(
        {.name = "score",
         .description = "Find the utility, embedding and loss of every sample with a saved model\n"
                        "  vocabpipe select score --load RUN --data-path CORPUS --seq-length 1024\n"
                        "      --output scores.safetensors\n"
                        "  mpirun -np 4 vocabpipe select score ...",
         .flags =
             {{.flags = {{.names = "--load",
                          .value = &o->options.load,
                          .help = "Folder of steps (the newest is used), a step, or a model",
                          .unit = "FOLDER",
                          .required = true},
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
              {.title = "Data", .flags = data},
              {.title = "Schedule", .flags = score_schedule_flags(o->options)},
              launch_flags(o->launch),
              {.title = "Devices",
               .flags = {{.names = "--device",
                          .value = &o->device,
                          .help = "host, or cuda: one GPU per rank; with --transport threads ranks "
                                  "may share one",
                          .choices = {"host", "cuda"}},
                         {.names = "--threads-per-rank",
                          .value = &o->options.threads_per_rank,
                          .help = "OpenMP threads per rank",
                          .range = between(1, 1024),
                          .unset = "the rank's share of the cores",
                          .absent = 0}}}},
         .run = [o](const GivenFlags&) { select_score(*o); }},
        o->launch);
}

}  // namespace vocabpipe::tool
