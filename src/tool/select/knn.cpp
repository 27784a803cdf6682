// SPDX-License-Identifier: Apache-2.0
// vocabpipe select knn: finds the nearest neighbours of all samples.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/select/files/sample_input.hpp"
#include "src/select/knn/centred_embeddings.hpp"
#include "src/select/knn/knn_graph.hpp"
#include "src/step/rank_placement.hpp"
#include "src/support/output_check.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "src/tool/select/select_run.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "src/tool/support/quantity.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

constexpr std::string_view kHnsw = "hnsw";

struct SelectKnnArguments {
    std::string embeddings, output;
    int64_t neighbours = 10;  // as in the paper that select run follows
    bool centre = false;
    std::string index = "exact";
    HnswOptions hnsw;
    uint64_t memory = 0;  // 0: not checked
    bool dry_run = false;
    Launch launch{.transport = started_by_mpirun() ? "mpi" : "threads"};
    int threads_per_rank = 0;  // 0: the rank's share of the cores
};

void print_knn_plan(const KnnMemory& plan, int64_t samples, int64_t width, int ranks) {
    const auto print = [](const char* phase, const std::vector<KnnMemory::Term>& terms) {
        std::printf("%s:\n", phase);
        for (const auto& [what, bytes] : terms) {
            std::printf("  %s: %s\n", what.c_str(), bytes_text(bytes).c_str());
        }
    };
    std::printf("%s of %s, %s; memory per rank %s\n", counted(samples, "sample").c_str(),
                counted(width, "number").c_str(), counted(ranks, "rank").c_str(),
                bytes_text(plan.total()).c_str());
    print("search", plan.search);
    print("writing", plan.writing);
}

void print_knn(const SelectKnnArguments& o, const KnnReport& report, int64_t samples) {
    std::printf("%s: %s, %s, longest row %lld, %lld without neighbors\n", o.output.c_str(),
                counted(samples, "sample").c_str(),
                counted(report.graph.entries / 2, "edge").c_str(),
                static_cast<long long>(report.graph.longest_row),
                static_cast<long long>(report.graph.without_neighbours));
    if (o.index == kHnsw) {
        std::printf("indices of all samples in %.2f s, searches in %.2f s; recall of %s: %s\n",
                    report.hnsw.indexing, report.hnsw.searching,
                    counted(std::min(o.hnsw.recall_samples, samples), "sample").c_str(),
                    percent_text(report.hnsw.recall).c_str());
        return;
    }
    const KnnRate& rate = report.rate;
    std::printf("%.1f GFLOP/s in %.2f s; large products alone: %.1f GFLOP/s, so %s\n",
                rate.rate() * 1e-9, rate.seconds, rate.gemm_rate * 1e-9,
                percent_text(rate.gemm_rate > 0 ? rate.rate() / rate.gemm_rate : 0).c_str());
}

/// Returns the signal that ended it; 0: none.
int knn_on(Communicator& world, const SelectKnnArguments& o) {
    const bool first = world.rank() == 0;
    std::unique_ptr<EmbeddingInput> input;
    PhaseProgress progress(first);
    KnnOptions options{.neighbours = o.neighbours,
                       .memory = o.memory,
                       .progress = [&](const char* phase, int64_t done,
                                       int64_t total) { progress.show(phase, done, total); },
                       .told_to_end = [] { return ending_signal() != 0; }};
    if (o.index == kHnsw) options.hnsw = o.hnsw;
    const auto placements = find_placements(world);
    options.threads = o.threads_per_rank > 0
                          ? o.threads_per_rank
                          : placements[static_cast<size_t>(world.rank())].threads();
    world.agree([&] {
        input = open_embedding(o.embeddings);
        if (o.dry_run) return;
        check_knn_memory(input->samples(), input->width(), world.size(), options);
        if (!first) return;
        OutputCheck check({o.embeddings});
        check.add("--output", o.output, graph_output());
    });
    const int64_t samples = input->samples();
    if (o.dry_run && first) {
        print_knn_plan(plan_knn_memory(samples, input->width(), world.size(), options), samples,
                       input->width(), world.size());
    }
    if (o.dry_run) {
        world.agree([&] { check_knn_memory(samples, input->width(), world.size(), options); });
        return 0;
    }
    std::map<std::string, std::string> metadata;
    if (o.centre) {
        progress.show("mean of the embeddings", 0, 0);
        input = centre_embeddings(world, std::move(input));
        metadata["knn.centre"] = "true";
    }
    const auto report = write_knn_graph(world, *input, o.output, options, std::move(metadata));
    progress.clear();
    if (!report) return ending_signal();
    if (first) print_knn(o, *report, samples);
    return 0;
}

void select_knn(SelectKnnArguments& o, const GivenFlags& given) {
    if (o.output.empty() && !o.dry_run) {
        throw UsageError("--output: is required without --dry-run");
    }
    for (const char* flag : {"--hnsw-m", "--ef-construction", "--ef-search", "--recall-samples"}) {
        if (o.index != kHnsw && given.contains(flag)) {
            throw UsageError(std::string(flag) + ": needs --index hnsw");
        }
    }
    if (o.launch.ranks_are_threads() && !o.launch.ranks) o.launch.ranks = 1;
    check_launch(o.launch);
    install_run_signals(o.launch.exit_signal);
    const int code =
        run_ranks("vocabpipe", o.launch, [&](Communicator& world) { (void)knn_on(world, o); });
    if (code != 0) throw Reported{code};
    if (ending_signal() != 0) throw Reported{128 + ending_signal()};
}

}  // namespace

Command select_knn_command() {
    const auto o = std::make_shared<SelectKnnArguments>();
    return comparing_flags(
        {.name = "knn",
         .description = "Find the nearest neighbors of all samples\n"
                        "  vocabpipe select knn --embeddings scores.safetensors --neighbours 10\n"
                        "      --output graph.safetensors\n"
                        "  mpirun -np 4 vocabpipe select knn ...",
         .flags =
             {{.flags = {{.names = "--embeddings",
                          .value = &o->embeddings,
                          .help = "Embeddings of the samples: from vocabpipe select score, or .npy "
                                  "or .parquet of others",
                          .unit = "FILE",
                          .required = true},
                         {.names = "--neighbours,--neighbors",
                          .value = &o->neighbours,
                          .help =
                              "Number of the most similar samples that a sample is joined with, "
                              "by cosine. Those without a positive one are left out",
                          .range = between(1, kMostKnnNeighbours)},
                         {.names = "--centre,--center",
                          .value = &o->centre,
                          .help = "Take the mean of all embeddings from each before the cosines. "
                                  "Hidden states of language models need it: they share a large "
                                  "common part"},
                         {.names = "--output",
                          .value = &o->output,
                          .help = "File of the graph; required without --dry-run",
                          .unit = "FILE"}}},
              {.title = "Approximate search",
               .flags = {{.names = "--index",
                          .value = &o->index,
                          .help = "exact multiplies every sample with every other; hnsw searches "
                                  "in hnswlib's graphs, finds nearly all, and takes time for many "
                                  "samples that grows little faster than their number",
                          .choices = {"exact", "hnsw"}},
                         {.names = "--hnsw-m",
                          .value = &o->hnsw.m,
                          .help = "hnsw: links per sample in upper layers",
                          .range = between(2, 1000)},
                         {.names = "--ef-construction",
                          .value = &o->hnsw.ef_construction,
                          .help = "hnsw: candidates while a sample is added. More find more",
                          .range = between(1, 100'000)},
                         {.names = "--ef-search",
                          .value = &o->hnsw.ef_search,
                          .help = "hnsw: candidates of a search. More find more",
                          .range = between(1, 100'000)},
                         {.names = "--recall-samples",
                          .value = &o->hnsw.recall_samples,
                          .help = "hnsw: samples that are compared with all others, to print which "
                                  "share of their nearest was found",
                          .range = between(1, 1'000'000)}}},
              {.title = "Memory and files",
               .flags = {memory_flag(o->memory),
                         {.names = "--dry-run",
                          .value = &o->dry_run,
                          .help = "Print memory per rank, and end"},
                         {.names = "--threads-per-rank",
                          .value = &o->threads_per_rank,
                          .help = "OpenMP threads per rank. After an exact search the file is the "
                                  "same for any number",
                          .range = between(1, kMostKnnThreads),
                          .unset = "the rank's share of the cores",
                          .absent = 0}}},
              launch_flags(o->launch)},
         .run = [o](const GivenFlags& given) { select_knn(*o, given); }},
        o->launch);
}

}  // namespace vocabpipe::tool
