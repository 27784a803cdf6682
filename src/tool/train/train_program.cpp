// SPDX-License-Identifier: Apache-2.0
#include "src/tool/train/train_program.hpp"

#include "src/tool/model/megatron_script.hpp"
#include "src/tool/train/products_after_training.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace vocabpipe::tool {

std::vector<FlagGroup> TrainProgram::flags() {
    std::vector<FlagGroup> groups = model_.flags();
    groups.push_back(launch_flags(launch_));
    for (FlagGroup& group : training_flags(options_)) groups.push_back(std::move(group));
    groups.push_back(model_.flags_of_scripts());
    return groups;
}

Command TrainProgram::command() {
    std::vector<FlagGroup> groups = flags();
    groups.push_back(config_.own_flags());
    return {
        .name = "train_gpt",
        .description =
            "Train a language model (GPT-2, Llama, Qwen, Gemma, mixtures of experts and others:\n"
            "--model-type) with pipeline and vocabulary parallelism.\n"
            "  mpirun -np 2 train_gpt --data-path PREFIX ...\n"
            "  train_gpt --transport threads --ranks 2 --data-path PREFIX ...",
        .flags = std::move(groups),
        .version = "train_gpt " VOCABPIPE_VERSION,
        .config = &config_,
        .refusal = refusal_of};
}

void TrainProgram::resolve(const GivenFlags& given) {
    // Must come before existing files decide what the run does.
    if (!options_.load.empty()) {
        std::error_code ignored;
        launch_.seen.push_back("--load " + options_.load +
                               (std::filesystem::exists(options_.load, ignored)
                                    ? ", which is there"
                                    : ", which is not there"));
    }
    model_.resolve(given);
    set_timeout(given);
    count_steps(given);
    check_launch(launch_, options_);
    options_.after_training =
        products_after_training(options_.device, options_.time_products, options_.gpu);
    for (const std::string& read : {config_.path(), options_.gpu.product_choices_file}) {
        if (!read.empty()) options_.files_read.push_back(read);
    }
    options_.log_interval_given = given.contains("--log-interval");
    options_.note = other_defaults(flags(), given, options_.model);
}

void TrainProgram::set_timeout(const GivenFlags& given) {
    const std::optional<double> minutes = model_.of_scripts().timeout_minutes;
    if (!minutes) return;
    if (given.contains("--distributed-timeout-seconds")) {
        throw UsageError("--distributed-timeout-minutes " + shortest_text(*minutes) +
                         ": conflicts with --distributed-timeout-seconds " +
                         shortest_text(launch_.timeout_seconds) + "; use only one of them");
    }
    launch_.timeout_seconds = 60 * *minutes;
}

void TrainProgram::count_steps(const GivenFlags& given) {
    if (options_.train_samples && given.contains("--train-iters")) {
        throw UsageError("--train-samples " + std::to_string(*options_.train_samples) +
                         ": conflicts with --train-iters " + std::to_string(options_.train_iters) +
                         "; use only one of them");
    }
    count_steps_of_samples(options_);
}

}  // namespace vocabpipe::tool
