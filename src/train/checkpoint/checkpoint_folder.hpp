// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// What --load names.
struct CheckpointSource {
    std::string folder;     ///< has config.json and weights
    bool training = false;  ///< a step of a run: optimizer and position, too
};

/// `path` is a folder of steps (the newest complete one is taken), one step, or a Hugging Face
/// model. With `weights_only` a step is nothing but a model. InputFileError if it is none of them.
[[nodiscard]] CheckpointSource find_checkpoint(const std::string& path, bool weights_only);
/// There is no such folder, or neither a step nor a model is in it: a run that loads from
/// where it saves has only begun.
[[nodiscard]] bool is_before_first_step(const std::string& path);

/// The step of a folder by its name, step-00000100; none for any other name.
[[nodiscard]] std::optional<int64_t> step_of_folder(const std::string& folder);

struct SavedStep {
    int64_t step = 0;
    std::string folder;
};
/// Complete steps in a folder, ascending; none if the folder does not exist.
[[nodiscard]] std::vector<SavedStep> complete_steps(const std::string& root);
/// Those that lack their training.json as well, which no save leaves and damage may.
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
    /// Makes the folder if needed. UsageError if anything in it has the name of a step after
    /// `start_step` (it would be replaced, and nothing ever is) or if another run writes into it.
    /// `loaded_from`: the step that the run goes on from, or empty. `damaged`: later steps that
    /// the run goes past; set_aside() frees their names.
    SaveFolder(std::string root, int64_t start_step, const std::string& loaded_from,
               std::vector<int64_t> damaged = {});
    ~SaveFolder();
    SaveFolder(const SaveFolder&) = delete;
    SaveFolder& operator=(const SaveFolder&) = delete;

    /// False where the file system has no locks: nothing keeps another run away.
    [[nodiscard]] bool locked() const { return locked_; }

    /// Gives the damaged steps other names: nobody's files are removed.
    void set_aside();
    /// Removes what crashed saves left and makes the partial folder.
    void begin(int64_t step);
    /// Gives the partial folder its name, durably.
    void publish(int64_t step);
    /// Removes the partial folder of a save that failed.
    void abandon(int64_t step) noexcept;
    /// Removes all complete steps of this run and of the one it goes on from in the same folder,
    /// but the newest `count`. A step with files of somebody else's in it stays.
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
