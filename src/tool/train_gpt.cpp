// SPDX-License-Identifier: Apache-2.0
// train_gpt: trains a GPT under mpirun (or on threads of one process); flags as Megatron names
// them.
#include "src/tool/config_file.hpp"
#include "src/tool/data_flags.hpp"
#include "src/tool/devices.hpp"
#include "src/tool/flag_values.hpp"
#include "src/tool/launch.hpp"
#include "src/tool/model_flags.hpp"
#include "src/tool/optimizer_flags.hpp"
#include "src/tool/run_signals.hpp"
#include "src/tool/terminal.hpp"
#include "src/tool/text.hpp"
#include "src/train/trainer.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/receive_early.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
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

void add_flags(CLI::App& app, TrainOptions& t, std::string& costs, std::string& time_products) {
    app.add_option("--train-iters", t.train_iters, "Steps")->capture_default_str();
    app.add_option_function<std::vector<int64_t>>(
           "--rampup-batch-size",
           [&t](const std::vector<int64_t>& v) {
               if (v.size() != 3) {
                   throw UsageError("--rampup-batch-size: has " + std::to_string(v.size()) +
                                    " values; give three, START INCREMENT SAMPLES");
               }
               t.ramp_up = BatchSizeRampUp{.start = v[0], .increment = v[1], .samples = v[2]};
           },
           "Batch-size warm-up, START INCREMENT SAMPLES: from START sequences per step to "
           "--global-batch-size, INCREMENT more at a time, within the first SAMPLES sequences")
        ->expected(3);
    tool::add_optimizer_flags(app, t);

    EvaluationOptions& e = t.evaluation;
    app.add_option("--eval-interval", e.interval, "Steps from one evaluation to the next")
        ->capture_default_str();
    app.add_option("--eval-iters", e.iters, "Global batches of validation data per evaluation")
        ->capture_default_str();
    app.add_option("--multiple-choice-path", e.multiple_choice_path,
                   "Evaluation set in llm.c's format, HellaSwag for one: its accuracy is reported");
    app.add_flag("--skip-train", e.skip_train, "Evaluate once, without training, and end");

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

    app.add_option_function<std::string>(
           "--receive-ahead",
           [&t](const std::string& text) { t.receive_ahead = receive_ahead_from(text); },
           "Passes before its use that a receive is posted, or auto: as early as it pays and "
           "memory allows")
        ->default_str("auto");

    app.add_option("--time-products", time_products,
                   "File for the fastest algorithms of the matrix products that the run used on "
                   "GPUs, timed after its last step; for --product-choices of later runs");

    app.add_option("--trace-dir", t.trace_dir, "Folder for Chrome traces of the last step");
    app.add_option("--metrics", t.metrics, "File for one JSON object per step");
    app.add_option("--tensorboard-dir", t.tensorboard_dir, "Folder for TensorBoard event files");
    app.add_option("--tensorboard-log-interval", t.tensorboard_log_interval,
                   "Steps per point in TensorBoard")
        ->capture_default_str();
    app.add_option("--report", t.report, "File for the final report as JSON");
    app.add_option("--profile", t.profile, "File for the measured costs of passes and links");
    app.add_option("--log-interval", t.log_interval,
                   "Steps per log line; on a terminal there is a progress bar without it")
        ->capture_default_str();

    app.add_option("--exit-interval", t.exit_interval,
                   "Save and end after a step that is a multiple of this");
    app.add_option("--exit-duration-in-mins", t.exit_duration_minutes,
                   "Save and end after so many minutes");
}

}  // namespace

int main(int argc, char** argv) {
    TrainOptions options;
    tool::Launch launch;
    std::string costs = "1,2";
    std::string time_products;
    CLI::App app(
        "Trains a GPT, Llama, Qwen or Gemma with pipeline and vocabulary parallelism.\n"
        "  mpirun -np 2 train_gpt --data-path PREFIX ...\n"
        "  train_gpt --transport threads --ranks 2 --data-path PREFIX ...");
    app.set_version_flag("--version", VOCABPIPE_VERSION);
    tool::ModelFlags model(app, options);
    tool::add_data_flags(app, options.data);
    add_flags(app, options, costs, time_products);
    tool::add_launch_flags(app, launch);
    const std::shared_ptr<tool::ConfigFile> config = tool::ConfigFile::add_to(app);
    const auto refuse = [](const std::string& what, ExitCode code) {
        return tool::report_before_launch(kProgram, what, code);
    };
    tool::check_flag_values(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ConversionError& error) {
        return refuse(std::string(error.what()) + config->source_of(error.what()) +
                          ": not a number or out of range; see train_gpt --help",
                      ExitCode::usage);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {  // --help, --version
            app.exit(error);
            return tool::finish_output(kProgram, ExitCode::ok);
        }
        return refuse(
            std::string(error.what()) + config->source_of(error.what()) + "; see train_gpt --help",
            ExitCode::usage);
    } catch (const Error& error) {
        return refuse(error.what() + config->source_of(error.what()), error.exit_code());
    }
    if (config->print()) {
        if (tool::first_of_launch()) std::fputs(app.config_to_str().c_str(), stdout);
        return tool::finish_output(kProgram, ExitCode::ok);
    }
    try {
        model.resolve();
        set_costs(costs, options);
        tool::check_launch(app, launch, options);
        if (!time_products.empty()) {
            options.after_training = tool::products_writer(options.device, time_products);
        }
        install_run_signals();
        options.stop_requested = stop_requested;
        options.terminated = ending_signal;
        options.terminal_columns = tool::terminal_columns();
        options.log_interval_given = app.count("--log-interval") > 0;
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
