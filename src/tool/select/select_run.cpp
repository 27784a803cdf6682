// SPDX-License-Identifier: Apache-2.0
#include "src/tool/select/select_run.hpp"

#include <memory>
#include <optional>
#include <string>

#include "src/select/decimal.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/tool/support/commands.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

/// Checks before the work that the files can be written.
void check_outputs(const SelectRunArguments& o) {
    OutputCheck check({o.graph, o.utility});
    check.add("--output", o.options.output, subset_output());
    if (!o.report.empty()) check.add("--report", o.report, selection_report_output());
    const OutputFile probe_output(o.options.output);
    if (!o.report.empty()) const OutputFile probe_report(o.report);
}

void select_on(Communicator& world, const SelectRunArguments& o) {
    const bool first = world.rank() == 0;
    PhaseProgress progress(first);
    SelectSamplesOptions options = o.options;
    if (options.state.empty()) options.state = options.output + ".state";
    options.progress = [&](const char* phase, int64_t done, int64_t total) {
        progress.show(phase, done, total);
    };
    SelectRunResult result;
    std::optional<SampleGraph> graph;
    world.agree([&] { graph.emplace(o.graph); });
    const SampleUtilities utilities(o.utility);
    SelectionRun run(world, *graph, utilities, options);
    if (o.dry_run) {
        progress.clear();
        if (first) print_selection_plan(o, run);
    }
    world.agree([&] {
        run.check_memory();
        if (!o.dry_run && first) check_outputs(o);
    });
    if (o.dry_run) return;

    run.begin();
    if (!run.folder()->locked()) {
        std::fprintf(stderr,
                     "vocabpipe: note: --state %s: its file system has no locks, so nothing keeps "
                     "a second run out\n",
                     run.folder()->path().c_str());
    }
    result.seconds.end("plan");
    run.run([&](const char* phase) { result.seconds.end(phase); });
    run.write();
    result.seconds.end("writing");
    result.used_bytes = static_cast<uint64_t>(
        largest_over_ranks(world, static_cast<int64_t>(run.context().memory.peak())));
    progress.clear();
    world.agree([&] {
        if (!first || o.report.empty()) return;
        OutputFile file(o.report);
        file.write(selection_report(o, run, result));
        file.publish();
    });
    run.end();
    if (!first) return;
    print_selection(o, run);
    for (const std::string& note : selection_notes(o, run)) {
        std::fprintf(stderr, "vocabpipe: note: %s\n", note.c_str());
    }
}

void select_run(SelectRunArguments& o) {
    check_one_size(o.options);
    if (o.options.output.empty() && !o.dry_run) {
        throw UsageError("--output: is required without --dry-run");
    }
    if (o.launch.ranks_are_threads() && !o.launch.ranks) o.launch.ranks = 1;
    check_launch(o.launch);
    const int code =
        run_ranks("vocabpipe", o.launch, [&](Communicator& world) { select_on(world, o); });
    if (code != 0) throw Reported{code};
}

}  // namespace

Flag graph_flag(SelectRunArguments& o) {
    return {.names = "--graph",
            .value = &o.graph,
            .help = "Similar samples, from vocabpipe select knn",
            .unit = "FILE",
            .required = true};
}

Flag utility_flag(SelectRunArguments& o) {
    return {.names = "--utility",
            .value = &o.utility,
            .help =
                "Utilities of the samples: from vocabpipe select score, or .npy or .parquet of "
                "others",
            .unit = "FILE",
            .required = true};
}

Flag fraction_flag(SelectRunArguments& o) {
    std::optional<Fraction>* fraction = &o.options.fraction;
    const auto set = [=](const auto& words) {
        *fraction = fraction_from(words.back());
        if (*fraction) return;
        throw UsageError("--fraction " + words.back() +
                         ": must be from 0 to 1, of at most 9 decimals");
    };
    return {.names = "--fraction",
            .value = FlagText{.set = set,
                              .get = [=] { return *fraction ? decimal_text(**fraction) : ""; }},
            .help = "Share of the samples to choose, rounded down",
            .unit = "X",
            .excludes = {"--subset-size"}};
}

Flag subset_size_flag(SelectRunArguments& o) {
    return {.names = "--subset-size",
            .value = &o.options.size,
            .help = "Number of samples to choose",
            .range = at_least(0)};
}

Flag alpha_flag(SelectRunArguments& o) {
    return {.names = "--alpha",
            .value = &o.options.alpha,
            .help = "Weight of the utilities of the chosen samples",
            .range = between(0, kMostObjectiveWeight)};
}

Flag beta_flag(SelectRunArguments& o) {
    return {.names = "--beta",
            .value = &o.options.beta,
            .help = "Weight of the similarities between them, which count against them",
            .range = between(0, kMostObjectiveWeight)};
}

Flag memory_flag(uint64_t& memory) {
    return {.names = "--memory",
            .value = FlagBytes{&memory},
            .help =
                "Memory per rank, such as 2GiB. A plan that needs more is refused before the "
                "work",
            .unset = "not limited"};
}

Command select_run_command() {
    const auto o = std::make_shared<SelectRunArguments>();
    return comparing_flags(
        {.name = "run",
         .description = "Choose samples that are useful and unlike each other\n"
                        "  vocabpipe select run --graph graph.safetensors --utility "
                        "scores.safetensors\n"
                        "      --fraction 0.3 --output subset.safetensors\n"
                        "  mpirun -np 4 vocabpipe select run ...",
         .flags =
             {{.flags = {graph_flag(*o),
                         utility_flag(*o),
                         {.names = "--output",
                          .value = &o->options.output,
                          .help = "File of the chosen samples; required without --dry-run",
                          .unit = "FILE"},
                         fraction_flag(*o),
                         subset_size_flag(*o)}},
              {.title = "Choice",
               .flags =
                   {alpha_flag(*o),
                    beta_flag(*o),
                    {.names = "--bounding",
                     .value = FlagText{.set =
                                           [o](const auto& words) {
                                               o->options.bounding =
                                                   BoundingRule::from(words.back(), "--bounding");
                                           },
                                       .get = [o] { return to_string(o->options.bounding); }},
                     .help = "What to decide before the rounds: exact decides nothing wrong; "
                             "bernoulli:Q, quota:Q and weighted:Q, which look at a share Q of "
                             "the neighbors, decide more; off",
                     .unit = "RULE",
                     .choices = {"off", "exact"},
                     .free = true},
                    {.names = "--partitions",
                     .value = &o->options.partitions,
                     .help = "Number of parts that greedy works on by themselves. A rank holds "
                             "one at a time. One part chooses best",
                     .range = between(1, kMostPartitions)},
                    {.names = "--rounds",
                     .value = &o->options.rounds,
                     .help = "Number of rounds, each with other parts. More choose better",
                     .range = between(1, kMostRounds)},
                    {.names = "--adaptive",
                     .value = &o->options.adaptive,
                     .help = "Use fewer parts in later rounds, none larger than in the first"},
                    {.names = "--seed",
                     .value = &o->options.seed,
                     .help = "Seed of parts and coins. The choice is the same for every number "
                             "of ranks"},
                    {.names = "--certificate-steps",
                     .value = &o->options.certificate_steps,
                     .help = "Steps that bound the objective of every choice from above, to say "
                             "how good this one is. Each reads much of the graph; 0: no bound",
                     .range = between(0, kMostCertificateSteps)}}},
              {.title = "Memory and files",
               .flags = {memory_flag(o->options.memory),
                         {.names = "--dry-run",
                          .value = &o->dry_run,
                          .help = "Print memory per rank, rounds and parts, and end"},
                         {.names = "--report",
                          .value = &o->report,
                          .help = "Write what was decided when, objectives, traffic, memory and "
                                  "times to this JSON file",
                          .unit = "FILE"},
                         {.names = "--state",
                          .value = &o->options.state,
                          .help =
                              "Folder to save to after every round, and every minute, and to go "
                              "on from. It is removed at the end",
                          .unit = "FOLDER",
                          .unset = "OUTPUT.state"},
                         {.names = "--scratch",
                          .value = &o->options.scratch,
                          .help = "Folder, on a fast disk of each host, of files without names for "
                                  "parts that wait and for the state of samples that --memory "
                                  "does not hold",
                          .unit = "FOLDER",
                          .unset = "the folder of --state"}}},
              launch_flags(o->launch)},
         .run = [o](const GivenFlags&) { select_run(*o); }},
        o->launch);
}

}  // namespace vocabpipe::tool
