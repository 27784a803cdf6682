// SPDX-License-Identifier: Apache-2.0
#include "src/tool/train_program.hpp"

#include "src/tool/devices.hpp"
#include "src/tool/flag_parser.hpp"
#include "src/tool/flag_values.hpp"
#include "src/tool/help_format.hpp"
#include "src/train/options/train_flags.hpp"

#include <string>

namespace vocabpipe::tool {

TrainProgram::TrainProgram()
    : app_(
          "Trains a GPT, Llama, Qwen or Gemma with pipeline and vocabulary parallelism.\n"
          "  mpirun -np 2 train_gpt --data-path PREFIX ...\n"
          "  train_gpt --transport threads --ranks 2 --data-path PREFIX ...",
          "train_gpt"),
      model_(app_, options_) {
    app_.set_version_flag("--version", "train_gpt " VOCABPIPE_VERSION, "Print the version and end");
    add_flags(app_, {launch_flags(launch_)});
    add_flags(app_, training_flags(options_));
    config_ = ConfigFile::add_to(app_);
    check_flag_values(app_);
    format_help(app_);
}

void TrainProgram::resolve() {
    model_.resolve();
    check_launch(app_, launch_, options_);
    if (!options_.time_products.empty()) {
        options_.after_training = products_writer(options_.device, options_.time_products);
    }
    for (const CLI::Option* read : {app_.get_config_ptr(), app_.get_option("--product-choices")}) {
        if (read->count() > 0) options_.files_read.push_back(read->as<std::string>());
    }
    options_.log_interval_given = app_.count("--log-interval") > 0;
}

std::vector<FlagGroup> TrainProgram::flags() {
    std::vector<FlagGroup> groups = train_flags(options_, model_.unresolved());
    groups.push_back(launch_flags(launch_));
    return groups;
}

}  // namespace vocabpipe::tool
