// SPDX-License-Identifier: Apache-2.0
// Saving and loading steps, for custom trainers.
#include "src/runtime/gathered.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/save_checkpoint.hpp"
#include "vocabpipe/checkpoint.hpp"
#include "vocabpipe/error.hpp"

#include <span>
#include <string>

namespace vocabpipe {

void save_step(TrainedRank& rank, const std::string& folder) {
    Communicator& communicator = rank.communicator();
    const TrainingPosition& position = rank.position();
    std::optional<SaveFolder> held;  // on one rank
    communicator.agree([&] {
        if (communicator.rank() == 0) held.emplace(folder, position.step - 1, std::string());
    });
    CheckpointSaver saver(communicator, rank.model(), held ? &*held : nullptr, {.root = folder});
    const ModelConfig& config = rank.model().config();
    saver.begin({.step = position.step,
                 .consumed_samples = position.consumed_samples,
                 .seq_length = config.seq_length,
                 .seed = position.seed,
                 .dtype = config.dtype == DType::bf16 ? "bf16" : "fp32",
                 .flags = {},
                 .files = {}});
    static_cast<void>(saver.finish());
}

bool load_step(TrainedRank& rank, const std::string& folder) {
    Communicator& communicator = rank.communicator();
    ModelRank& model = rank.model();
    std::string found;  // found by one rank: others might look while a step is being saved
    communicator.agree([&] {
        if (communicator.rank() != 0 || is_before_first_step(folder)) return;
        const CheckpointSource source = find_checkpoint(folder, false);
        if (!source.training) {
            throw InputFileError(source.folder +
                                 ": holds a model, not a saved step of a training run");
        }
        found = source.folder;
    });
    found = gathered_texts(communicator, found).front();
    if (found.empty()) return false;
    std::optional<Checkpoint> checkpoint;
    communicator.agree([&] {
        const ModelConfig& config = model.config();
        checkpoint.emplace(
            CheckpointSource{.folder = found,
                             .training = true,
                             .own_layers = config.has_own_layers() ? &config : nullptr});
        check_same_model(checkpoint->config(), checkpoint->config_path(), config);
        if (checkpoint->state()->seq_length == config.seq_length) return;
        throw InputFileError(found + ": its sequences have " +
                             std::to_string(checkpoint->state()->seq_length) +
                             " tokens, but those of this training have " +
                             std::to_string(config.seq_length) + "; use the same length");
    });
    checkpoint->verify(communicator);
    communicator.agree([&] { checkpoint->fill(model, rank.context()); });
    const TrainingState& state = *checkpoint->state();
    rank.set_position(
        {.step = state.step, .consumed_samples = state.consumed_samples, .seed = state.seed});
    return true;
}

}  // namespace vocabpipe
