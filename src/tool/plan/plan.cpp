// SPDX-License-Identifier: Apache-2.0
// vocabpipe plan: time and memory of training steps, before any GPU is rented.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "src/model/published/published_models.hpp"
#include "src/support/length_distribution.hpp"
#include "src/support/names_of.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/support/split_text.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/model/config_notes.hpp"
#include "src/tool/plan/row_config.hpp"
#include "src/tool/plan/trainer_flags.hpp"
#include "src/tool/schedule/pass_times_file.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/interrupt.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/options/parameter_group_flag.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/stage_layout.hpp"

namespace vocabpipe::tool {

namespace {

struct PlanArguments {
    std::string model, gpu, profile, pass_times, lengths, html, config, receive_ahead = "auto";
    // Comma-separated.
    std::string schedules, modes, chunks, layers, layout, tensor, context, pipeline, data, expert,
        sizes;
    std::string expert_tensor, recompute;
    PlanOptions options;
    std::vector<ParameterGroup> groups;
    std::optional<int64_t> vocab_size;
    std::optional<int> mtp_layers;
    std::optional<double> memory_gib;
    int64_t top = 15;
    std::optional<int64_t> command;  // a row's number, from 1
    bool json = false, all_sizes = false;
};

/// The entries of a comma-separated list; none for "".
std::vector<std::string> entries(std::string_view flag, const std::string& text) {
    std::vector<std::string> result;
    if (text.empty()) return result;
    for (const std::string_view entry : split_text(text)) {
        if (entry.empty()) {
            throw UsageError(std::string(flag) + " " + text +
                             ": has an empty entry; separate the entries with one comma");
        }
        result.emplace_back(entry);
    }
    return result;
}

/// The words of "a, b, c".
std::vector<std::string> words_of(const std::string& list) {
    std::vector<std::string> words;
    std::istringstream text(list);
    for (std::string word; std::getline(text >> std::ws, word, ',');) words.push_back(word);
    return words;
}

/// The numbers of a list. An empty list changes nothing.
template <typename Number>
void read_numbers(std::string_view flag, const std::string& list, std::vector<Number>& numbers) {
    if (!list.empty()) numbers.clear();
    for (const std::string& text : entries(flag, list)) {
        Number value = 0;
        const char* const end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, value);
        if (read.ec != std::errc() || read.ptr != end || (text.size() > 1 && text[0] == '0')) {
            throw UsageError(std::string(flag) + " " + text +
                             ": is not a number, or is out of range; use a decimal integer");
        }
        numbers.push_back(value);
    }
}

void read_lists(const PlanArguments& arguments, PlanOptions& options) {
    if (arguments.all_sizes) list_all_sizes(options);
    read_numbers("--chunks", arguments.chunks, options.chunks);
    read_numbers("--layers-per-stage", arguments.layers, options.layers_per_stage);
    read_numbers("--tensor-model-parallel-size", arguments.tensor, options.tensor);
    read_numbers("--context-parallel-size", arguments.context, options.context);
    read_numbers("--pipeline-model-parallel-size", arguments.pipeline, options.pipeline);
    read_numbers("--data-parallel-size", arguments.data, options.data);
    read_numbers("--expert-model-parallel-size", arguments.expert, options.expert);
    read_numbers("--expert-tensor-parallel-size", arguments.expert_tensor, options.expert_tensor);
    read_numbers("--micro-batch-size", arguments.sizes, options.micro_batch_sizes);
    if (!arguments.recompute.empty()) options.recompute.clear();
    for (const std::string& name : entries("--recompute-granularity", arguments.recompute)) {
        options.recompute.push_back(recompute_from(name));
    }
    options.schedules = entries("--schedules", arguments.schedules);
    for (const std::string& name : entries("--vocab-modes", arguments.modes)) {
        options.vocab_modes.push_back(vocab_mode_from(name));
    }
}

/// Takes layers and depths of the stages from a layout, and the modes that have its vocabulary
/// layers, unless modes are given.
void read_layout(const std::string& text, PlanOptions& options) {
    if (text.empty()) return;
    StageLayoutOptions must_fit{.num_layers = options.model.config.num_layers,
                                .mtp_layers = options.model.config.mtp_num_layers};
    const StageLayout layout = parse_stage_layout(text, must_fit);
    if (options.vocab_modes.empty()) {
        using enum VocabMode;
        options.vocab_modes = layout.sharded_output
                                  ? std::vector{interlaced, one_barrier, two_barriers}
                                  : std::vector{none};
    }
    for (const VocabMode mode : options.vocab_modes) {
        must_fit.vocab_mode = mode;
        (void)parse_stage_layout(text, must_fit);
    }
    options.layers_per_stage = layout.layers;
    options.mtp_stage = layout.mtp_stage;
}

/// The files that a plan writes.
class PlanFiles {
public:
    /// Throws UsageError for a file that must not be replaced, OutputFileError.
    explicit PlanFiles(const PlanArguments& arguments) {
        OutputCheck check({arguments.model, arguments.gpu, arguments.profile, arguments.pass_times,
                           arguments.lengths});
        const auto open = [&](const char* flag, const std::string& path, const OutputKind& kind) {
            if (path.empty()) return std::unique_ptr<OutputFile>();
            check.add(flag, path, kind);
            return std::make_unique<OutputFile>(path);
        };
        page_ = open("--html", arguments.html, page_output());
        config_ = open("--write-config", arguments.config, row_config_output());
    }
    /// `row`: as --show-command chose it. UsageError if it chose none and none fits.
    void write(const Plan& plan, std::optional<size_t> row) {
        if (config_ && !row && !plan.rows.front().fits()) {
            throw UsageError("--write-config " + config_->path() +
                             ": no row fits; choose one with --show-command N");
        }
        if (page_) publish(*page_, plan_html(plan));
        if (config_) publish(*config_, row_config(plan, row.value_or(0)));
    }

private:
    static void publish(OutputFile& file, const std::string& text) {
        file.write(text);
        file.publish();
    }

    std::unique_ptr<OutputFile> page_, config_;
};

void plan_steps(PlanArguments arguments) {
    PlanOptions& options = arguments.options;
    if (!arguments.profile.empty()) {
        use_profile(options, read_profile(arguments.profile));
    } else {
        if (arguments.model.empty() || arguments.gpu.empty()) {
            throw UsageError(
                std::string(arguments.model.empty() ? "--model" : "--gpu") +
                ": is required; set --model, --gpu and --seq-length, or --profile FILE");
        }
        options.model = load_model(arguments.model);
        print_config_notes(named_model(arguments.model).path);
        options.device = load_device(arguments.gpu);
    }
    if (arguments.vocab_size) options.model.config.vocab_size = *arguments.vocab_size;
    if (arguments.mtp_layers) options.model.config.mtp_num_layers = *arguments.mtp_layers;
    use_parameter_groups(options, arguments.groups);
    options.receive_ahead = receive_ahead_from(arguments.receive_ahead);
    if (arguments.memory_gib) options.memory_gib = *arguments.memory_gib;
    if (!arguments.pass_times.empty()) {
        options.pass_times = read_planned_pass_times(arguments.pass_times);
    }
    if (!arguments.lengths.empty()) options.documents = read_length_distribution(arguments.lengths);
    read_lists(arguments, options);
    read_layout(arguments.layout, options);
    PlanFiles files(arguments);  // invalid names fail before the work, not after it
    const InterruptGuard interrupt;
    options.stop = [&] { return interrupt.signal() != 0; };
    options.best = std::max(options.best, static_cast<int>(std::min<int64_t>(arguments.top, 100)));
    Plan plan;
    {
        PhaseProgress shown(true);
        options.progress = [&](std::string_view phase, size_t done, size_t all) {
            shown.show(phase.data(), static_cast<int64_t>(done), static_cast<int64_t>(all));
        };
        plan = make_plan(options);
        plan.remedies = find_remedies(plan);
    }
    if (plan.rows.empty()) interrupt.check();  // else they are those so far
    std::optional<size_t> row;
    if (arguments.command) row = static_cast<size_t>(*arguments.command - 1);
    if (row && *row >= plan.rows.size()) {
        throw UsageError("--show-command " + std::to_string(*row + 1) + ": the plan has " +
                         counted(std::ssize(plan.rows), "row") + "; use one of their numbers");
    }
    const std::string text =
        arguments.json ? plan_json(plan) : plan_text(plan, static_cast<size_t>(arguments.top), row);
    files.write(plan, row);
    std::fwrite(text.data(), 1, text.size(), stdout);
    interrupt.check();
    if (arguments.config.empty() || arguments.json) return;
    const std::string command = train_command(options, plan.rows[row.value_or(0)].candidate);
    const std::string launcher = command.substr(0, command.find(" train_gpt"));
    const std::string file = one_line(arguments.config);
    std::printf("\n%s: %s train_gpt --config %s --data-path PREFIX\n", file.c_str(),
                launcher.c_str(), file.c_str());
}

}  // namespace

Command plan_command() {
    const auto a = std::make_shared<PlanArguments>();
    PlanOptions& o = a->options;
    return {
        .name = "plan",
        .description = "Predict step time, MFU and memory of every schedule and vocabulary mode",
        .flags =
            {{.flags = {{.names = "--model",
                         .value = &a->model,
                         .help = "Built-in name or Hugging Face config.json: " + known_models(),
                         .choices = words_of(known_models()),
                         .free = true},
                        {.names = "--gpus",
                         .value = &o.gpus,
                         .help = "Number of GPUs, one per rank",
                         .required = true},
                        {.names = "--gpu",
                         .value = &a->gpu,
                         .help = "Built-in name or hardware file: " + known_devices(),
                         .choices = words_of(known_devices()),
                         .free = true},
                        {.names = "--seq-length",
                         .value = &o.seq_length,
                         .help = "Tokens per sequence",
                         .absent = 0},
                        {.names = "--length-distribution",
                         .value = &a->lengths,
                         .help = "CSV file (length,count) of document lengths, as data inspect "
                                 "writes it: shows what padding, packing and microbatches of "
                                 "different lengths make of them",
                         .unit = "FILE"},
                        {.names = "--profile",
                         .value = &a->profile,
                         .help =
                             "Profile with the measured costs of a model on a machine; replaces "
                             "--model, --gpu, --seq-length and --micro-batch-size",
                         .excludes = {"--model", "--gpu", "--seq-length", "--micro-batch-size"}},
                        {.names = "--pass-times",
                         .value = &a->pass_times,
                         .help =
                             "CSV file (rank,op,stage,ns) of pass times that replace those of the "
                             "GPU or profile; candidates with other stages are skipped"},
                        {.names = "--vocab-size",
                         .value = &a->vocab_size,
                         .help = "Vocabulary size in rows",
                         .range = at_least(1),
                         .unset = "the model's"},
                        {.names = "--mtp-num-layers",
                         .value = &a->mtp_layers,
                         .help = "Depths of multi-token prediction",
                         .unit = "LAYERS",
                         .range = between(0, kMostDepths),
                         .unset = "the model's",
                         .excludes = {"--profile"}},
                        {.names = "--tensor-model-parallel-size",
                         .value = &a->tensor,
                         .help = "Ranks that share a stage, separated by commas",
                         .unset = "1"},
                        {.names = "--context-parallel-size",
                         .value = &a->context,
                         .help = "Ranks that share sequences, separated by commas",
                         .unset = "1"},
                        {.names = "--pipeline-model-parallel-size",
                         .value = &a->pipeline,
                         .help = "Ranks of a pipeline, separated by commas",
                         .unset = "GPUs / (tensor ranks x context ranks x replicas)"},
                        {.names = "--data-parallel-size",
                         .value = &a->data,
                         .help = "Replicas, separated by commas",
                         .unset = "what the others leave; 1 where no pipeline size is set"},
                        {.names = "--expert-model-parallel-size",
                         .value = &a->expert,
                         .help = "Ranks that share the experts of a layer, separated by commas",
                         .unset = "1"},
                        {.names = "--expert-tensor-parallel-size",
                         .value = &a->expert_tensor,
                         .help = "Ranks that share each expert, separated by commas",
                         .unset = "1"},
                        {.names = "--moe-imbalance",
                         .value = &o.moe_imbalance,
                         .help = "Greatest load of the ranks that share experts over their mean; "
                                 "assumed",
                         .range = at_least(1)},
                        {.names = "--micro-batch-size",
                         .value = &a->sizes,
                         .help = "Sequences per microbatch, separated by commas",
                         .unset = "1"},
                        {.names = "--all-sizes",
                         .value = &a->all_sizes,
                         .help = "Try every p, t, d, e, x, microbatch size (1 to 8) and "
                                 "recomputation that these GPUs, the model and the batch allow, "
                                 "of the lists that are not set"},
                        {.names = "--global-batch-size",
                         .value = &o.global_batch_size,
                         .help = "Sequences per step",
                         .required = true},
                        {.names = "--memory-gib",
                         .value = &a->memory_gib,
                         .help = "Memory per GPU, in GiB",
                         .range = above(0),
                         .unset = "the device's"},
                        {.names = "--schedules",
                         .value = &a->schedules,
                         .help = "Names of schedules, separated by commas",
                         .choices = schedule_names(),
                         .free = true,
                         .unset = "all"},
                        {.names = "--vocab-modes",
                         .value = &a->modes,
                         .help = "Vocabulary modes, separated by commas: "
                                 "none,redistributed,interlaced,one_barrier,two_barriers",
                         .choices = vocab_mode_names(),
                         .free = true,
                         .unset = "all"},
                        {.names = "--chunks",
                         .value = &a->chunks,
                         .help = "Stages per rank, separated by commas",
                         .unset = "the family's own; 2 and 4 where any number works"},
                        {.names = "--overlap-pairs,--overlap-moe-expert-parallel-comm",
                         .value = &o.overlap_pairs,
                         .help = "Plan 1f1b, eager-1f1b, interleaved and dualpipe-v with pairs of "
                                 "a backward and the forward behind it"},
                        {.names = "--layers-per-stage",
                         .value = &a->layers,
                         .help = "Layers of every stage, separated by commas, instead of the "
                                 "planner's own splits",
                         .unset = "the planner's splits"},
                        {.names = "--pipeline-model-parallel-layout",
                         .value = &a->layout,
                         .help = "Layers of every stage as Megatron writes them, such as "
                                 "Et*3|(tt|)*29,m|L; V in place of E and L shards the vocabulary "
                                 "layers",
                         .unit = "LAYOUT",
                         .unset = "the planner's splits",
                         .excludes = {"--layers-per-stage"}},
                        {.names = "--recompute-granularity",
                         .value = &a->recompute,
                         .help = "What candidates recompute before backwards, separated by commas: "
                                 "none,selective,full",
                         .choices = recompute_names(),
                         .free = true,
                         .unset = "none"},
                        parameter_group_flag(a->groups),
                        {.names = "--receive-ahead",
                         .value = &a->receive_ahead,
                         .help = "How many passes before its use a simulation posts a receive, or "
                                 "auto: as early as useful within the memory limit",
                         .unit = "PASSES",
                         .choices = {"auto"},
                         .free = true},
                        {.names = "--evaluation",
                         .value = named(&o.evaluation, evaluation_from),
                         .help = "How to predict times: auto, search, simulation or pass_times",
                         .choices = names_of({Evaluation::automatic, Evaluation::search,
                                              Evaluation::simulation, Evaluation::pass_times})},
                        {.names = "--top",
                         .value = &a->top,
                         .help = "Number of rows to print",
                         .range = at_least(1)},
                        {.names = "--threads",
                         .value = &o.threads,
                         .help = "Number of threads; 0: as many as the machine runs at once"},
                        {.names = "--json",
                         .value = &a->json,
                         .help = "Print everything as JSON to standard output"},
                        {.names = "--html",
                         .value = &a->html,
                         .help = "Write a page with sortable tables to this file"},
                        {.names = "--show-command",
                         .value = &a->command,
                         .help = "Print the train_gpt command of the row with this number",
                         .range = at_least(1),
                         .unset = "that of the first row, if it fits"},
                        {.names = "--write-config",
                         .value = &a->config,
                         .help = "Write the flags of that row for train_gpt --config to this "
                                 "file"}}},
             trainer_flags(o.trainer)},
        .run = [a](const GivenFlags&) { plan_steps(*a); }};
}

}  // namespace vocabpipe::tool
