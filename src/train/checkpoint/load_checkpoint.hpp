// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/model_weights.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/world.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace vocabpipe {

/// A step of a run, or a Hugging Face model. Opening it checks files, names, types and shapes, but
/// not yet values and checksums; InputFileError if they do not fit together.
class Checkpoint {
public:
    explicit Checkpoint(const CheckpointSource& source);
    Checkpoint(const Checkpoint&) = delete;  // named_ refers to weights_
    Checkpoint& operator=(const Checkpoint&) = delete;

    [[nodiscard]] const std::string& folder() const { return folder_; }
    /// Sizes of the model, and the type of a run's step; sequence length and losses are not in the
    /// file.
    [[nodiscard]] const ModelConfig& config() const { return config_; }
    [[nodiscard]] std::string config_path() const;
    [[nodiscard]] std::string training_path() const;
    /// None: weights only.
    [[nodiscard]] const std::optional<TrainingState>& state() const { return state_; }
    [[nodiscard]] const TensorFolder& weights() const { return weights_; }
    /// The tensor of the whole model with this Hugging Face name.
    [[nodiscard]] const FoundTensor& weight(const std::string& name) const {
        return named_->at(name);
    }
    /// All tensors of the model.
    [[nodiscard]] const ModelWeights& named_weights() const { return *named_; }

    /// Verifies the checksums of the files that say how to read the rest (configuration, index,
    /// headers of weights). They are small; call this before concluding anything from them. Errors
    /// as verify().
    void verify_metadata() const;
    /// Compares both copies of a tied weight that is stored under two names. Then, with a training
    /// state, reads every byte once and compares its checksums. Each rank reads a share.
    /// Collective; errors are agreed on. `poll` is called between pieces and may throw; it may be
    /// empty.
    void verify(Communicator& communicator, const std::function<void()>& poll = {}) const;
    /// The same by one process.
    void verify(const std::function<void()>& poll = {}) const;

    /// Fills the rank's rows of weights and, with a training state, moments. The model's
    /// configuration must be this one's, but that it may have adapters where this one has none;
    /// their weights stay as they are.
    void fill(ModelRank& model, Context& ctx) const;

private:
    struct Part;
    [[nodiscard]] std::vector<Part> parts() const;
    void read_adapters(const std::string& folder);
    void check_adapters_of_file() const;
    void check_optimizer() const;
    void check_files() const;
    [[nodiscard]] bool has_index() const;

    std::string folder_;
    ModelConfig config_;
    std::optional<TrainingState> state_;
    std::optional<TrainingState> recorded_;  ///< kept also where only the weights are loaded
    TensorFolder weights_;
    std::unique_ptr<SafetensorsFile> adapters_;  ///< of CheckpointSource::adapter
    std::optional<ModelWeights> named_;  ///< weights_ and adapters_, by their names in the model
    std::unique_ptr<SafetensorsFile> optimizer_;
};

}  // namespace vocabpipe
