// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/step_saver.hpp"

#include <array>
#include <cstdio>
#include <string>

namespace vocabpipe {

StepSaver::StepSaver(Communicator& communicator, const TrainOptions& options, ModelRank& model,
                     SaveFolder* folder, const TokenizerFiles& tokenizer, RunLog& log)
    : options_(options),
      log_(log),
      saver_(communicator, model, folder,
             SaveOptions{.root = options.save,
                         .total_limit = options.save_total_limit,
                         .max_shard_bytes = options.max_shard_bytes,
                         .async = options.async_save,
                         .tokenizer = tokenizer}) {}

bool StepSaver::due(int64_t step) const {
    return step == options_.train_iters ||
           (options_.save_interval > 0 && step % options_.save_interval == 0);
}

void StepSaver::save(const TrainingState& state) {
    if (saver_.pending()) {
        if (saver_.writing() && !said_that_saves_wait_) {
            log_.print_line("step " + std::to_string(state.step) +
                            " waits for the previous save, and later saves will too: writing takes "
                            "longer than the steps between two saves");
            said_that_saves_wait_ = true;
        }
        finish();
    }
    saver_.begin(state);
    if (!options_.async_save) finish();
}

void StepSaver::ended(const std::optional<SaveReport>& saved) {
    if (!saved) return;
    last_ = saved;
    std::array<char, 96> text;
    std::snprintf(text.data(), text.size(), ": %.1f MiB in %.2f s",
                  static_cast<double>(saved->bytes) / (1 << 20), saved->seconds);
    std::string line = "saved " + step_folder(options_.save, saved->step) + text.data();
    if (options_.async_save) {
        std::snprintf(text.data(), text.size(), " in the background, copied in %.3f s",
                      saved->copy_seconds);
        line += text.data();
    }
    log_.print_line(line);
}

}  // namespace vocabpipe
