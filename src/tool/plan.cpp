// SPDX-License-Identifier: Apache-2.0
// vocabpipe plan: time and memory of training steps before a GPU is rented.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/tool/commands.hpp"
#include "src/tool/pass_times_file.hpp"
#include "src/tool/progress.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/plan.hpp"

namespace vocabpipe::tool {

namespace {

struct Arguments {
    std::string model, gpu, profile, pass_times, html;
    std::string schedules, modes, chunks;  // comma-separated
    PlanOptions options;
    std::optional<int64_t> vocab_size;
    std::optional<double> memory_gib;
    std::string evaluation = "auto";
    std::string recompute = "none";
    int64_t top = 15;
    bool json = false;
};

/// The entries of a comma-separated list; of "" none.
std::vector<std::string> entries(std::string_view flag, const std::string& text) {
    std::vector<std::string> result;
    if (text.empty()) return result;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(',', at), text.size());
        result.push_back(text.substr(at, end - at));
        if (result.back().empty()) {
            throw UsageError(std::string(flag) + " " + text +
                             ": has an empty entry; give names with one comma between two");
        }
        at = end + 1;
    }
    return result;
}

int chunks_from(const std::string& text) {
    int value = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec == std::errc() && read.ptr == end && (text.size() == 1 || text[0] != '0')) {
        return value;
    }
    throw UsageError("--chunks " + text +
                     ": not a number, or out of range; give a decimal integer");
}

void run(Arguments arguments) {
    if (arguments.top < 1) {
        throw UsageError("--top " + std::to_string(arguments.top) + ": must be at least 1");
    }
    PlanOptions& options = arguments.options;
    if (!arguments.profile.empty()) {
        use_profile(options, read_profile(arguments.profile));
    } else {
        if (arguments.model.empty() || arguments.gpu.empty()) {
            throw UsageError(std::string(arguments.model.empty() ? "--model" : "--gpu") +
                             ": missing; give --model, --gpu and --seq-length, or --profile FILE");
        }
        options.model = load_model(arguments.model);
        options.device = load_device(arguments.gpu);
    }
    if (arguments.vocab_size) {
        if (*arguments.vocab_size < 1) {
            throw UsageError("--vocab-size " + std::to_string(*arguments.vocab_size) +
                             ": must be at least 1");
        }
        options.model.vocab_size = *arguments.vocab_size;
    }
    if (arguments.memory_gib) {
        if (!(*arguments.memory_gib > 0)) {
            throw UsageError("--memory-gib " + std::to_string(*arguments.memory_gib) +
                             ": must be more than 0");
        }
        options.memory_gib = *arguments.memory_gib;
    }
    if (!arguments.pass_times.empty()) {
        options.pass_times = read_planned_pass_times(arguments.pass_times);
    }
    options.schedules = entries("--schedules", arguments.schedules);
    for (const std::string& name : entries("--vocab-modes", arguments.modes)) {
        options.vocab_modes.push_back(vocab_mode_from(name));
    }
    for (const std::string& number : entries("--chunks", arguments.chunks)) {
        options.chunks.push_back(chunks_from(number));
    }
    options.evaluation = evaluation_from(arguments.evaluation);
    options.recompute = recompute_from(arguments.recompute);
    std::unique_ptr<OutputFile> page;  // an impossible name shows before the work, not after
    if (!arguments.html.empty()) {
        OutputCheck({arguments.model, arguments.gpu, arguments.profile, arguments.pass_times})
            .add("--html", arguments.html, page_output());
        page = std::make_unique<OutputFile>(arguments.html);
    }
    Plan plan;
    {
        ProgressLine line(/*everywhere=*/true);
        options.progress = [&](size_t done, size_t all) {
            line.show("evaluated " + std::to_string(done) + " of " + std::to_string(all) +
                      " candidates and variations");
        };
        plan = make_plan(options);
    }
    if (page) {
        page->write(plan_html(plan));
        page->publish();
    }
    const std::string text =
        arguments.json ? plan_json(plan) : plan_text(plan, static_cast<size_t>(arguments.top));
    std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

void add_plan(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "plan", "Predict step time, MFU and memory of every schedule and vocabulary mode");
    auto arguments = std::make_shared<Arguments>();
    PlanOptions& options = arguments->options;
    CLI::Option* model =
        command->add_option("--model", arguments->model,
                            "built-in name or Hugging Face config.json: " + known_models());
    command->add_option("--gpus", options.gpus, "ranks of the pipeline")->required();
    CLI::Option* gpu = command->add_option("--gpu", arguments->gpu,
                                           "built-in name or hardware file: " + known_devices());
    CLI::Option* sequence =
        command->add_option("--seq-length", options.seq_length, "tokens per sequence");
    CLI::Option* profile = command->add_option(
        "--profile", arguments->profile,
        "measured costs of a model on a machine, instead of --model, --gpu, --seq-length and "
        "--micro-batch-size");
    command->add_option("--pass-times", arguments->pass_times,
                        "CSV file rank,op,stage,ns: times of passes, instead of what GPU or "
                        "profile say of them; candidates with other stages are left out");
    command->add_option("--vocab-size", arguments->vocab_size, "default: the model's");
    CLI::Option* microbatch =
        command
            ->add_option("--micro-batch-size", options.micro_batch_size, "sequences per microbatch")
            ->capture_default_str();
    for (CLI::Option* said : {model, gpu, sequence, microbatch}) profile->excludes(said);
    command->add_option("--global-batch-size", options.global_batch_size, "sequences per step")
        ->required();
    command->add_option("--memory-gib", arguments->memory_gib, "per GPU; default: the device's");
    command->add_option("--schedules", arguments->schedules, "comma-separated; default: all");
    command->add_option("--vocab-modes", arguments->modes,
                        "none,redistributed,interlaced,one_barrier,two_barriers; default: all");
    command->add_option("--chunks", arguments->chunks,
                        "stages per rank, comma-separated; default: the family's own, 2 and 4 "
                        "where any number works");
    command
        ->add_option("--recompute-granularity", arguments->recompute,
                     "none, selective or full: what all candidates recompute before backwards")
        ->capture_default_str();
    command->add_option("--evaluation", arguments->evaluation, "auto, simulation or pass_times")
        ->capture_default_str();
    command->add_option("--top", arguments->top, "rows to print")->capture_default_str();
    command->add_option("--threads", options.threads, "0: as many as the machine runs at once")
        ->capture_default_str();
    command->add_flag("--json", arguments->json, "everything, to standard output");
    command->add_option("--html", arguments->html, "write a page that sorts by click");
    command->callback([arguments] { run(*arguments); });
}

}  // namespace vocabpipe::tool
