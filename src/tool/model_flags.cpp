// SPDX-License-Identifier: Apache-2.0
#include "src/tool/model_flags.hpp"

#include "src/tool/launch.hpp"
#include "src/tool/text.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/generate.hpp"

#include <cstdio>

namespace vocabpipe::tool {

namespace {

std::string schedule_names() {
    std::string names;
    for (const Generator& generator : generators()) {
        names += (names.empty() ? "" : ", ") + std::string(generator.name);
    }
    return names;
}

void add_schedule(CLI::App& app, TrainOptions& t) {
    app.add_option("--pipeline-model-parallel-size", t.pipeline_model_parallel_size,
                   "Ranks of a pipeline; with several times as many ranks its replicas train on "
                   "different data (default: all ranks)")
        ->check(CLI::PositiveNumber);
    app.add_option("--schedule", t.schedule,
                   "Schedule: a .csv or .json file, or " + schedule_names())
        ->capture_default_str();
    app.add_option(
        "--pipeline-model-parallel-layout", t.layout,
        "Layers of every stage, such as Et*3|(tt|)*2,t|L; V in place of E and L: sharded");
    app.add_option("--decoder-first-pipeline-num-layers", t.end_layers.first,
                   "Layers of the rank with the first stage (default: as many as the others)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--decoder-last-pipeline-num-layers", t.end_layers.last,
                   "Layers of the rank with the last stage (default: as many as the others)")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--chunks,--num-virtual-stages-per-pipeline-rank", t.chunks,
                   "Stages per rank v (default: the schedule's own)");
    app.add_option("--num-layers-per-virtual-pipeline-stage", t.layers_per_chunk,
                   "The same, from the layers of one stage");
    app.add_option(
        "--group-size,--microbatch-group-size-per-virtual-pipeline-stage", t.group_size,
        "Microbatches in a row per stage, of interleaved schedules (default: the ranks)");
    app.add_option("--memory-limit,--schedule-memory-limit", t.memory_limit,
                   "Most activations alive on a rank, in chunks, of schedules that trade memory "
                   "for bubble (default: the schedule's own)");
    app.add_option("--warm-up-depth", t.warm_up_depth,
                   "Microbatches between the stages of 1F1B (default: 1, eager 2)");
    app.add_option("--search-moves", t.search_moves,
                   "Moves of a local search for a shorter step under --schedule-costs (default: "
                   "0, the schedule's own order)");
}

}  // namespace

namespace {

/// As argparse does: scripts append what they override.
CLI::App& last_wins(CLI::App& app) {
    app.option_defaults()->take_last();
    return app;
}

}  // namespace

ModelFlags::ModelFlags(CLI::App& app, TrainOptions& options)
    : app_(last_wins(app)), options_(options), architecture_(app, options.model) {
    app.add_option("--dtype", dtype_, "fp32 or bf16")
        ->check(CLI::IsMember({"fp32", "bf16"}))
        ->capture_default_str();
    app.add_flag("--bf16", bf16_, "Same as --dtype bf16");
    app.add_option("--micro-batch-size", options.micro_batch_size, "Sequences per microbatch")
        ->capture_default_str();
    app.add_option("--global-batch-size", options.global_batch_size, "Sequences per step")
        ->capture_default_str();
    app.add_option("--seed", options.seed, "Seed of weights and data order")->capture_default_str();
    add_schedule(app, options);
    app.add_option("--vocab-mode", vocab_mode_,
                   "none, redistributed, interlaced, one_barrier, two_barriers")
        ->capture_default_str();
    app.add_option("--recompute-granularity", recompute_,
                   "Activations that are made again before the backward instead of kept: none, "
                   "selective (outputs of norms and activation functions) or full");
    app.add_flag("--recompute-activations", recompute_activations_,
                 "Same as --recompute-granularity selective");
    app.add_option("--threads-per-rank", options.threads_per_rank,
                   "OpenMP threads per rank (default: the rank's share of the cores)");
}

void ModelFlags::resolve() {
    ModelConfig& m = options_.model;
    // One command line for a job that is started again and again, as Megatron's.
    if (!options_.load.empty() && options_.load == options_.save && !options_.finetune &&
        is_before_first_step(options_.load)) {
        if (first_of_launch()) {
            std::printf("--load %s: no step is there yet, a new run begins\n",
                        one_line(options_.load).c_str());
        }
        options_.load.clear();
    }
    architecture_.resolve(options_.load.empty()
                              ? std::string()
                              : find_checkpoint(options_.load, /*weights_only=*/true).folder);
    if (bf16_ && app_.count("--dtype") > 0 && dtype_ != "bf16") {
        throw UsageError("--dtype " + dtype_ + ": --bf16 says bf16; give one of them");
    }
    m.dtype = bf16_ || dtype_ == "bf16" ? DType::bf16 : DType::fp32;
    options_.vocab_mode = vocab_mode_from(vocab_mode_);
    if (recompute_activations_) options_.recompute = Recompute::selective;
    if (!recompute_.empty()) {
        options_.recompute = recompute_from(recompute_);
        if (recompute_activations_ && options_.recompute != Recompute::selective) {
            throw UsageError("--recompute-granularity " + recompute_ +
                             ": --recompute-activations says selective; give one of them");
        }
    }
    // A layout says by itself whether the vocabulary layers are whole.
    const bool whole = !options_.layout.empty() && options_.layout.find('V') == std::string::npos;
    if (whole && app_.count("--vocab-mode") == 0) options_.vocab_mode = VocabMode::none;
    if (app_.count("--threads-per-rank") > 0 && options_.threads_per_rank < 1) {
        throw UsageError("--threads-per-rank " + std::to_string(options_.threads_per_rank) +
                         ": must be at least 1");
    }
    if (options_.chunks != 0 && options_.layers_per_chunk != 0) {
        throw UsageError("--num-layers-per-virtual-pipeline-stage " +
                         std::to_string(options_.layers_per_chunk) + ": --chunks " +
                         std::to_string(options_.chunks) + " says it already; give one of them");
    }
}

}  // namespace vocabpipe::tool
