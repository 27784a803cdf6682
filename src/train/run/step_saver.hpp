// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/save_checkpoint.hpp"
#include "src/train/log/run_log.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <optional>

namespace vocabpipe {

/// The saved steps of a run: when (--save-interval), beside the steps or not (--async-save), and
/// what the log says of them. All of it is collective but due().
class StepSaver {
public:
    /// `folder` as CheckpointSaver's. All must outlive it.
    StepSaver(Communicator& communicator, const TrainOptions& options, ModelRank& model,
              SaveFolder* folder, const std::string& tokenizer, RunLog& log);

    /// Every --save-interval steps, and after the last one.
    [[nodiscard]] bool due(int64_t step) const;
    /// After waiting for an older one. Complete on return, unless beside the steps.
    void save(const TrainingState& state);
    /// After every step.
    void poll() { ended(saver_.poll()); }
    /// Waits for what is pending.
    void finish() { ended(saver_.finish()); }
    /// The last step that is complete under its name.
    [[nodiscard]] const std::optional<SaveReport>& last() const { return last_; }
    /// That a save writes, of all ranks.
    [[nodiscard]] uint64_t file_bytes() const { return saver_.file_bytes(); }
    /// Of host memory.
    [[nodiscard]] uint64_t snapshot_bytes() const { return saver_.snapshot_bytes(); }

private:
    void ended(const std::optional<SaveReport>& saved);

    const TrainOptions& options_;
    RunLog& log_;
    CheckpointSaver saver_;
    std::optional<SaveReport> last_;
    bool said_that_saves_wait_ = false;
};

}  // namespace vocabpipe
