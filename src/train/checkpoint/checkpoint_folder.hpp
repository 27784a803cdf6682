// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// The folder that --load names.
struct CheckpointSource {
    std::string folder;        ///< has config.json and weights
    bool training = false;     ///< a step of a run: has optimizer state and position, too
    std::string adapter = {};  ///< PEFT's folder of adapters for the model; empty: none
    /// The run's model where its layers are the user's own, which config.json does not describe.
    const ModelConfig* own_layers = nullptr;
};

/// `path` is a folder of steps (the newest complete one is taken), one step, or a Hugging Face
/// model. With `weights_only` a step counts as a model. InputFileError if it is none of them.
[[nodiscard]] CheckpointSource find_checkpoint(const std::string& path, bool weights_only);
/// Whether `path` does not exist, or is a folder without a step or a model: a run that loads from
/// where it saves starts anew then.
[[nodiscard]] bool is_before_first_step(const std::string& path);

/// The step of a folder by its name, step-00000100; none for any other name.
[[nodiscard]] std::optional<int64_t> step_of_folder(const std::string& folder);

struct SavedStep {
    int64_t step = 0;
    std::string folder;
};
/// Complete steps in a folder, ascending; none if the folder does not exist.
[[nodiscard]] std::vector<SavedStep> complete_steps(const std::string& root);
/// All steps by their names, also those without a training.json: no save leaves such a step, but
/// damage may.
[[nodiscard]] std::vector<SavedStep> named_steps(const std::string& root);

/// ROOT/step-00000100.
[[nodiscard]] std::string step_folder(const std::string& root, int64_t step);
/// ROOT/damaged-step-00000100, or damaged-step-00000100-2 and so on if that is taken.
[[nodiscard]] std::string damaged_folder(const std::string& root, int64_t step);
/// ROOT/.step-00000100.partial: where a step is written before it gets its name.
[[nodiscard]] std::string partial_folder(const std::string& root, int64_t step);

/// The folder of --save, held by one rank for the whole run. A step appears under its name by one
/// rename, when all of its files are durable, so a crash leaves either a complete step or a partial
/// folder. Failures are OutputFileErrors.
class SaveFolder {
public:
    /// Makes the folder if needed. UsageError if it already has a step after `start_step`, which a
    /// save would have to replace, or if another run writes into it. `loaded_from`: the step that
    /// the run resumes, or empty. `damaged`: later steps that the run passes over; set_aside()
    /// frees their names.
    SaveFolder(std::string root, int64_t start_step, const std::string& loaded_from,
               std::vector<int64_t> damaged = {});
    ~SaveFolder();
    SaveFolder(const SaveFolder&) = delete;
    SaveFolder& operator=(const SaveFolder&) = delete;

    /// False where the file system has no locks: another run may then write here, too.
    [[nodiscard]] bool locked() const { return locked_; }

    /// Renames the damaged steps; no file is removed.
    void set_aside();
    /// Removes what crashed saves left and makes the partial folder.
    void begin(int64_t step);
    /// Gives the partial folder its name, durably.
    void publish(int64_t step);
    /// Removes the partial folder of a save that failed.
    void abandon(int64_t step) noexcept;
    /// Keeps the newest `count` complete steps and removes the others, of this run and of the one
    /// that it resumes in the same folder. A step that holds foreign files stays.
    void keep_last(int64_t count);

private:
    void remove_leftovers() noexcept;

    std::string root_;
    int64_t start_step_ = 0;
    std::vector<int64_t> damaged_;
    bool continues_ = false;  ///< the steps that were there before are this run's, too
    int lock_ = -1;
    bool locked_ = false;
};

}  // namespace vocabpipe
