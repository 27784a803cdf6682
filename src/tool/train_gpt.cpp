// SPDX-License-Identifier: Apache-2.0
// train_gpt: trains a GPT under mpirun (or on threads of one process); flags as Megatron names
// them.
#include "src/tool/data_flags.hpp"
#include "src/tool/launch.hpp"
#include "src/tool/model_flags.hpp"
#include "src/tool/run_signals.hpp"
#include "src/tool/text.hpp"
#include "src/train/trainer.hpp"
#include "vocabpipe/error.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

namespace {

using namespace vocabpipe;

constexpr const char* kProgram = "train_gpt";

/// "auto", "F,B", two positive integers of which only the ratio matters, or a profile file.
void set_costs(const std::string& text, TrainOptions& options) {
    if (text == "auto") {
        options.schedule_costs.reset();
        return;
    }
    if (text.ends_with(".json")) {
        options.schedule_costs.reset();
        options.cost_file = text;
        return;
    }
    int64_t forward = 0;
    int64_t backward = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%ld,%ld%n", &forward, &backward, &used) != 2 ||
        static_cast<size_t>(used) != text.size() || forward < 1 || backward < 1) {
        throw UsageError("--schedule-costs " + text +
                         ": must be auto, a profile FILE.json, or two positive integers F,B such "
                         "as 1,2");
    }
    options.schedule_costs = std::pair{forward, backward};
}

void add_flags(CLI::App& app, TrainOptions& t, std::string& costs) {
    app.add_option("--train-iters", t.train_iters, "Steps")->capture_default_str();
    app.add_option("--lr", t.lr, "Largest learning rate")->capture_default_str();
    app.add_option("--min-lr", t.min_lr, "Learning rate at the end of the cosine")
        ->capture_default_str();
    app.add_option("--lr-warmup-iters", t.lr_warmup_iters, "Steps of linear warm-up")
        ->capture_default_str();
    app.add_option("--weight-decay", t.optimizer.weight_decay, "Decoupled weight decay of matrices")
        ->capture_default_str();
    app.add_option("--clip-grad", t.optimizer.clip_grad, "Largest global gradient norm; 0: off")
        ->capture_default_str();
    app.add_option("--adam-beta1", t.optimizer.beta1)->capture_default_str();
    app.add_option("--adam-beta2", t.optimizer.beta2)->capture_default_str();
    app.add_option("--adam-eps", t.optimizer.epsilon)->capture_default_str();

    app.add_option("--load", t.load,
                   "Go on from the newest step in a folder, from one step, or from the weights of "
                   "a Hugging Face model");
    app.add_flag("--finetune", t.finetune,
                 "With --load of a step: its weights only, training begins at step 1");
    app.add_option("--save", t.save, "Folder for steps to go on from; written after the last step");
    app.add_option("--save-interval", t.save_interval, "Save after every so many steps, too");
    app.add_option("--save-total-limit", t.save_total_limit,
                   "Complete steps to keep in the folder (default: all)");
    app.add_option("--max-shard-size", t.max_shard_bytes,
                   "Most bytes of weights in a saved file, such as 500MB (default: 5GB)")
        ->transform(CLI::AsSizeValue(true))
        ->check(CLI::PositiveNumber);
    app.add_flag("--async-save", t.async_save,
                 "Copy the state and write it beside the following steps; takes host memory for "
                 "the copy");

    app.add_option("--schedule-costs", costs,
                   "What the order is built for: a ratio F,B; a profile FILE; or auto, measured "
                   "in the first steps")
        ->capture_default_str();
    app.add_option("--c0-margin", t.c0_margin,
                   "Part of B kept free for the broadcast of X, in the unit of F,B; nanoseconds "
                   "with a profile or auto")
        ->capture_default_str();

    app.add_option_function<std::string>(
           "--reduction",
           [&t](const std::string& name) {
               t.reductions = name == "native" ? Reductions::native : Reductions::ordered;
           },
           "How partial sums of vocabulary shards are added up: ordered (the same bits on every "
           "transport) or native (the transport's own reduction)")
        ->check(CLI::IsMember({"ordered", "native"}))
        ->default_str("ordered");

    app.add_option("--trace-dir", t.trace_dir, "Folder for Chrome traces of the last step");
    app.add_option("--metrics", t.metrics, "File for one JSON object per step");
    app.add_option("--report", t.report, "File for the final report as JSON");
    app.add_option("--profile", t.profile, "File for the measured costs of passes and links");
    app.add_option("--log-interval", t.log_interval, "Steps per log line")->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
    TrainOptions options;
    tool::Launch launch;
    std::string costs = "1,2";
    CLI::App app(
        "Trains a GPT, Llama, Qwen or Gemma with pipeline and vocabulary parallelism.\n"
        "  mpirun -np 2 train_gpt --data-path PREFIX ...\n"
        "  train_gpt --transport threads --ranks 2 --data-path PREFIX ...");
    app.set_version_flag("--version", VOCABPIPE_VERSION);
    tool::ModelFlags model(app, options);
    tool::add_data_flags(app, options.data);
    add_flags(app, options, costs);
    tool::add_launch_flags(app, launch);
    const auto refuse = [](const std::string& what, ExitCode code) {
        return tool::report_before_launch(kProgram, what, code);
    };
    try {
        app.parse(argc, argv);
    } catch (const CLI::ConversionError& error) {
        return refuse(
            std::string(error.what()) + ": not a number or out of range; see train_gpt --help",
            ExitCode::usage);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        return refuse(std::string(error.what()) + "; see train_gpt --help", ExitCode::usage);
    }
    try {
        model.resolve();
        set_costs(costs, options);
        tool::check_launch(app, launch, options);
        install_run_signals();
        options.stop_requested = stop_requested;
        options.command = tool::command_line(argc, argv);
        options.date = tool::utc_now();
    } catch (const Error& error) {
        return refuse(error.what(), error.exit_code());
    } catch (const std::exception& error) {
        return refuse(std::string("internal: ") + error.what(), ExitCode::failed);
    }
    return tool::run_ranks(kProgram, launch,
                           [&](Communicator& communicator) { train(communicator, options); });
}
