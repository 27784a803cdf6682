// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/tokenizer_files.hpp"
#include "src/train/checkpoint/save_checkpoint.hpp"
#include "src/train/log/run_log.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <optional>

namespace vocabpipe {

/// Decides when a run saves a step (--save-interval), saves it during later steps or not
/// (--async-save), and logs it. Everything but due() is collective.
class StepSaver {
public:
    /// `folder`: as CheckpointSaver's. All arguments must outlive it.
    StepSaver(Communicator& communicator, const TrainOptions& options, ModelRank& model,
              SaveFolder* folder, const TokenizerFiles& tokenizer, RunLog& log);

    /// True every --save-interval steps, and after the last one.
    [[nodiscard]] bool due(int64_t step) const;
    /// Waits for an older save first. Complete on return, unless --async-save.
    void save(const TrainingState& state);
    /// Call after every step.
    void poll() { ended(saver_.poll()); }
    /// Waits for a pending save.
    void finish() { ended(saver_.finish()); }
    /// The last step that is complete under its name.
    [[nodiscard]] const std::optional<SaveReport>& last() const { return last_; }
    /// Bytes that a save writes, all ranks together.
    [[nodiscard]] uint64_t file_bytes() const { return saver_.file_bytes(); }
    /// Bytes of host memory.
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
