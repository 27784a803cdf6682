// SPDX-License-Identifier: Apache-2.0
#include "src/tool/select/select_run.hpp"

#include <memory>
#include <optional>
#include <string>

#include "src/select/decimal.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/graph_parts.hpp"
#include "src/select/write_subset.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/tool/support/commands.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

constexpr double kMostRounds = 1'000'000;

/// Checks before the work that the files can be written.
void check_outputs(const SelectRunArguments& o) {
    OutputCheck check({o.graph, o.utility});
    check.add("--output", o.output, subset_output());
    if (!o.report.empty()) check.add("--report", o.report, selection_report_output());
    const OutputFile probe_output(o.output);
    if (!o.report.empty()) const OutputFile probe_report(o.report);
}

SubsetInfo subset_info(const SelectRunArguments& o, const UtilityInput& utility,
                       const SelectContext& context, const SelectRunResult& result) {
    SubsetInfo info{.corpus = context.graph.corpus(), .count = result.k, .provenance = {}};
    // What the graph's file does not record about the samples, the utilities' file may.
    if (info.corpus.data.empty()) info.corpus.data = utility.corpus().data;
    if (info.corpus.seq_length == 0) info.corpus.seq_length = utility.corpus().seq_length;
    for (const auto& [flag, value] : o.deciding(result.k)) {
        info.provenance["select." + flag.substr(2)] = value;
    }
    const SelectionProgress& progress = result.selection->progress();
    info.provenance["select.graph"] = std::to_string(progress.graph);
    info.provenance["select.utility"] = std::to_string(progress.utility);
    info.provenance["select.objective"] = std::to_string(result.selection->objective());
    info.provenance["utility.kind"] = utility.kind();
    return info;
}

void select_on(Communicator& world, const SelectRunArguments& o) {
    const bool first = world.rank() == 0;
    std::optional<GraphFile> graph;
    std::unique_ptr<UtilityInput> utility;
    SelectRunResult result;
    world.agree([&] {
        graph.emplace(o.graph, GraphFile::Rows::some);
        utility = open_utility(o.utility);
        Corpus::check_same(graph->corpus(), o.graph, utility->corpus(), o.utility);
        result.k = subset_size_of(o, graph->nodes());
        if (o.partitions > std::max<int64_t>(graph->nodes(), 1)) {
            throw UsageError("--partitions " + std::to_string(o.partitions) + ": there are only " +
                             std::to_string(graph->nodes()) + " samples; use fewer");
        }
        if (graph->nodes() / o.partitions >= kMostPartNodes) {
            throw UsageError("--partitions " + std::to_string(o.partitions) +
                             ": a partition can have at most 2^32 samples; use at least " +
                             std::to_string(graph->nodes() / kMostPartNodes + 1));
        }
    });
    const PartedGraph parted = owners_of_parts(world, *graph);
    if (parted.parts > 1) check_same_utilities(world, *utility);
    PhaseProgress progress(first);
    SelectContext context{.world = world,
                          .graph = *graph,
                          .owners = parted.owners,
                          .objective = {.alpha = o.alpha, .beta = o.beta},
                          .seed = o.seed,
                          .memory = MemoryBudget(o.memory),
                          .progress = [&](const char* phase, int64_t done, int64_t total) {
                              progress.show(phase, done, total);
                          }};
    const int64_t parts = o.partitions;
    const auto plan = [&](const GraphSizes& sizes) {
        result.sizes = sizes;
        context.blocks =
            plan_blocks(sizes, o.memory, world.size(), parts, o.bounding, context.batch_bytes);
        result.plan = plan_memory(sizes, world.size(), parts, o.bounding, context.batch_bytes,
                                  context.blocks);
    };
    // Too much memory for even the best graph is reported before all rows are read.
    plan(GraphSizes::least(graph->nodes(), parted.entries, world.size()));
    if (o.memory == 0 || result.plan.total() <= o.memory) plan(GraphSizes::of(context));
    if (o.dry_run) {
        progress.clear();
        if (first) print_selection_plan(o, result, world.size());
    }
    world.agree([&] {
        check_memory_plan(result.plan, o.memory, result.sizes, world.size(), parts, o.bounding,
                          context.batch_bytes);
        if (!o.dry_run && first) check_outputs(o);
    });
    if (o.dry_run) return;

    SelectionFolder folder(world, o.state.empty() ? o.output + ".state" : o.state,
                           o.deciding(result.k), o.scratch);
    if (!folder.locked()) {
        std::fprintf(stderr,
                     "vocabpipe: note: --state %s: its file system has no locks, so nothing keeps "
                     "a second run out\n",
                     folder.path().c_str());
    }
    context.blocks.folder = o.scratch.empty() ? folder.path() : o.scratch;
    const SelectionOptions options{
        .k = result.k,
        .bounding = o.bounding,
        .rounds = {.parts = parts, .rounds = o.rounds, .adaptive = o.adaptive},
        .certificate_steps = o.certificate_steps};
    const auto utilities = [&](int64_t at, std::span<int32_t> to) { utility->read(at, to); };
    std::optional<Selection> selection;
    context.agree([&] {
        selection.emplace(context, result.sizes, result.plan, utilities, options, &folder);
    });
    result.selection = &*selection;
    result.seconds.end("plan");
    selection->run([&](const char* phase) { result.seconds.end(phase); });
    write_subset(context, selection->state(), o.output, subset_info(o, *utility, context, result));
    result.seconds.end("writing");
    result.used_bytes = static_cast<uint64_t>(
        largest_over_ranks(world, static_cast<int64_t>(context.memory.peak())));
    progress.clear();
    world.agree([&] {
        if (!first || o.report.empty()) return;
        OutputFile file(o.report);
        file.write(selection_report(o, result, context));
        file.publish();
    });
    folder.remove();
    if (!first) return;
    print_selection(o, result);
    for (const std::string& note : selection_notes(o, result)) {
        std::fprintf(stderr, "vocabpipe: note: %s\n", note.c_str());
    }
}

void select_run(SelectRunArguments& o) {
    if (o.fraction.has_value() == o.subset_size.has_value()) {
        throw UsageError("--fraction or --subset-size: give one of them");
    }
    if (o.output.empty() && !o.dry_run) {
        throw UsageError("--output: is required without --dry-run");
    }
    if (o.launch.ranks_are_threads() && !o.launch.ranks) o.launch.ranks = 1;
    check_launch(o.launch);
    const int code =
        run_ranks("vocabpipe", o.launch, [&](Communicator& world) { select_on(world, o); });
    if (code != 0) throw Reported{code};
}

}  // namespace

std::map<std::string, std::string> SelectRunArguments::deciding(int64_t k) const {
    return {{"--subset-size", std::to_string(k)},
            {"--alpha", std::to_string(alpha)},
            {"--beta", std::to_string(beta)},
            {"--bounding", to_string(bounding)},
            {"--partitions", std::to_string(partitions)},
            {"--rounds", std::to_string(rounds)},
            {"--adaptive", adaptive ? "given" : "not given"},
            {"--seed", std::to_string(seed)}};
}

int64_t subset_size_of(const SelectRunArguments& arguments, int64_t n) {
    if (const auto fraction = arguments.fraction) {
        return static_cast<int64_t>(WideSum{n} * fraction->numerator / fraction->denominator);
    }
    const int64_t k = *arguments.subset_size;
    if (k > n) {
        throw UsageError("--subset-size " + std::to_string(k) + ": there are only " +
                         std::to_string(n) + " samples; use at most as many");
    }
    return k;
}

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
    std::optional<Fraction>* fraction = &o.fraction;
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
            .value = &o.subset_size,
            .help = "Number of samples to choose",
            .range = at_least(0)};
}

Flag alpha_flag(SelectRunArguments& o) {
    return {.names = "--alpha",
            .value = &o.alpha,
            .help = "Weight of the utilities of the chosen samples",
            .range = between(0, kMostObjectiveWeight)};
}

Flag beta_flag(SelectRunArguments& o) {
    return {.names = "--beta",
            .value = &o.beta,
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
                          .value = &o->output,
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
                                               o->bounding =
                                                   BoundingRule::from(words.back(), "--bounding");
                                           },
                                       .get = [o] { return to_string(o->bounding); }},
                     .help = "What to decide before the rounds: exact decides nothing wrong; "
                             "bernoulli:Q, quota:Q and weighted:Q, which look at a share Q of "
                             "the neighbors, decide more; off",
                     .unit = "RULE",
                     .choices = {"off", "exact"},
                     .free = true},
                    {.names = "--partitions",
                     .value = &o->partitions,
                     .help = "Number of parts that greedy works on by themselves. A rank holds "
                             "one at a time. One part chooses best",
                     .range = between(1, 0x1p32)},
                    {.names = "--rounds",
                     .value = &o->rounds,
                     .help = "Number of rounds, each with other parts. More choose better",
                     .range = between(1, kMostRounds)},
                    {.names = "--adaptive",
                     .value = &o->adaptive,
                     .help = "Use fewer parts in later rounds, none larger than in the first"},
                    {.names = "--seed",
                     .value = &o->seed,
                     .help = "Seed of parts and coins. The choice is the same for every number "
                             "of ranks"},
                    {.names = "--certificate-steps",
                     .value = &o->certificate_steps,
                     .help = "Steps that bound the objective of every choice from above, to say "
                             "how good this one is. Each reads much of the graph; 0: no bound",
                     .range = between(0, kMostCertificateSteps)}}},
              {.title = "Memory and files",
               .flags = {memory_flag(o->memory),
                         {.names = "--dry-run",
                          .value = &o->dry_run,
                          .help = "Print memory per rank, rounds and parts, and end"},
                         {.names = "--report",
                          .value = &o->report,
                          .help = "Write what was decided when, objectives, traffic, memory and "
                                  "times to this JSON file",
                          .unit = "FILE"},
                         {.names = "--state",
                          .value = &o->state,
                          .help =
                              "Folder to save to after every round, and every minute, and to go "
                              "on from. It is removed at the end",
                          .unit = "FOLDER",
                          .unset = "OUTPUT.state"},
                         {.names = "--scratch",
                          .value = &o->scratch,
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
