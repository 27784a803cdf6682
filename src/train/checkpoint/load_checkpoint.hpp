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

/// A step of a run, or a Hugging Face model, looked through and checked against what it says of
/// itself: files, names, types and shapes, not yet values and checksums. InputFileError otherwise.
class Checkpoint {
public:
    explicit Checkpoint(const CheckpointSource& source);
    Checkpoint(const Checkpoint&) = delete;  // named_ refers to weights_
    Checkpoint& operator=(const Checkpoint&) = delete;

    [[nodiscard]] const std::string& folder() const { return folder_; }
    /// Sizes, and the type of a run's step; sequence length and losses are not in it.
    [[nodiscard]] const ModelConfig& config() const { return config_; }
    [[nodiscard]] std::string config_path() const;
    [[nodiscard]] std::string training_path() const;
    /// None: weights only.
    [[nodiscard]] const std::optional<TrainingState>& state() const { return state_; }
    [[nodiscard]] const TensorFolder& weights() const { return weights_; }
    /// Of the name that Hugging Face gives a tensor of the whole model.
    [[nodiscard]] const FoundTensor& weight(const std::string& name) const {
        return named_->at(name);
    }

    /// Of what says how the rest is to be read (configuration, index, headers of weights) the
    /// checksums: little to read, before anything is concluded from it. Errors as verify().
    void verify_metadata() const;
    /// Compares a tied weight that is stored under both of its names. Then reads every byte once
    /// and compares the checksums of the training state; nothing to compare without one. Each rank
    /// reads a share. Collective; errors are agreed on. `poll`: called between pieces; may throw.
    /// Empty: nothing.
    void verify(Communicator& communicator, const std::function<void()>& poll = {}) const;
    /// The same by one process.
    void verify(const std::function<void()>& poll = {}) const;

    /// The rank's rows of weights and, with a training state, moments. The model's configuration
    /// must be this one's.
    void fill(ModelRank& model, Context& ctx) const;

private:
    struct Part;
    [[nodiscard]] std::vector<Part> parts() const;
    void check_optimizer() const;
    void check_files() const;
    [[nodiscard]] bool has_index() const;

    std::string folder_;
    ModelConfig config_;
    std::optional<TrainingState> state_;
    std::optional<TrainingState> recorded_;  ///< also where only the weights are taken
    TensorFolder weights_;
    std::optional<ModelWeights> named_;  ///< weights_, by the names of the model
    std::unique_ptr<SafetensorsFile> optimizer_;
};

}  // namespace vocabpipe
