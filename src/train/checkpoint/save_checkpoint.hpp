// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/stored_rows.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "src/train/checkpoint/weight_files.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/world.hpp"

#include <atomic>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

struct SaveOptions {
    std::string root;         ///< the folder of steps; all ranks must see the same files
    int64_t total_limit = 0;  ///< complete steps to keep; 0: all
    uint64_t max_shard_bytes = kMaxShardBytes;  ///< of the data of a file of weights
    /// Copy the rows first and write them beside the steps that follow, not while these wait.
    bool async = false;
    std::string tokenizer = {};  ///< a file that each step gets a copy of; "": none
};

/// A step that is complete under its name.
struct SaveReport {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;       ///< from begin() until it had its name
    double copy_seconds = 0;  ///< of this rank, in begin(); 0 without a copy
};

/// Writes weights and optimizer state of all ranks as whole logical tensors, every rank its rows,
/// into ROOT/step-NNNNNNNN, one step at a time: rows and files made durable by all ranks, then
/// checksums and the name by the one that has the folder.
///
///     saver.begin(state);                         // after a step
///     if (const auto saved = saver.poll()) ...    // after each of the following ones
///     if (const auto saved = saver.finish()) ...  // at the end, or at once
///
/// All of it is collective and between steps; errors are agreed on. After an error there is
/// nothing to do but to destroy the object, which removes what is half written. A thread of each
/// rank writes, also where the rank does nothing but wait for it: so it answers the others, who may
/// be done much earlier. These threads never communicate.
class CheckpointSaver {
public:
    /// `folder` is the root's, on one rank, and null on the others. Allocates the snapshot. Model
    /// and folder must outlive it. Not collective.
    CheckpointSaver(Communicator& communicator, ModelRank& model, SaveFolder* folder,
                    SaveOptions options);
    ~CheckpointSaver();
    CheckpointSaver(const CheckpointSaver&) = delete;
    CheckpointSaver& operator=(const CheckpointSaver&) = delete;

    /// Of the memory of the host that this rank's snapshot takes.
    [[nodiscard]] uint64_t snapshot_bytes() const { return snapshot_.size(); }
    /// That a save writes, of all ranks.
    [[nodiscard]] uint64_t file_bytes() const;
    [[nodiscard]] bool pending() const { return pending_; }
    /// Of what is pending, rows were not durable yet on all ranks when that was last looked at.
    [[nodiscard]] bool writing() const { return pending_ && !publishing_; }
    /// Nothing may be pending. Of `state`, `files` is filled in.
    void begin(TrainingState state);
    /// Goes on with what is pending as far as that takes no waiting.
    [[nodiscard]] std::optional<SaveReport> poll();
    /// Waits for what is pending.
    [[nodiscard]] std::optional<SaveReport> finish();

private:
    void take_snapshot();
    [[nodiscard]] std::string partial_path(size_t file) const;
    /// On the thread: one file after the other, so that no more than one is open.
    void write();
    void publish(const std::vector<std::vector<std::byte>>& pieces_of_ranks);

    Communicator& communicator_;
    Device& device_;
    SaveFolder* folder_;
    SaveOptions options_;
    std::string tokenizer_text_;
    std::string config_text_;
    std::string index_text_;              ///< of shards; empty: one file of weights
    std::vector<std::string> names_;      ///< of the files with tensors: weights, optimizer
    std::vector<SafetensorsPlan> plans_;  ///< of these files
    std::vector<StoredRows> rows_;        ///< on the device
    DeviceMemory snapshot_;
    std::vector<StoredRows> copied_;  ///< the same rows in the snapshot

    // Of the pending save.
    bool pending_ = false;
    bool publishing_ = false;  ///< all ranks' rows are durable
    TrainingState state_;
    SaveReport report_;
    int64_t begin_ns_ = 0;
    std::vector<Piece> pieces_;
    std::atomic<bool> stop_ = false;
    std::future<void> work_;  ///< this rank's part; not valid: done
};

}  // namespace vocabpipe
