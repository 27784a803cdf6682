// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/tokenizer_files.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/stored_rows.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "src/train/checkpoint/weight_files.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/world.hpp"

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
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
    TokenizerFiles tokenizer = {};  ///< files that each step gets copies of
};

/// A step that is complete under its name.
struct SaveReport {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;       ///< from begin() until it had its name
    double copy_seconds = 0;  ///< of this rank, in begin(); 0 without a copy
};

/// Writes weights and optimizer state of all ranks as whole logical tensors into
/// ROOT/step-NNNNNNNN, one step at a time. Every rank writes its rows and makes them durable; then
/// the rank that has the folder writes the checksums and renames it.
///
///     saver.begin(state);                         // after a step
///     if (const auto saved = saver.poll()) ...    // after each of the following ones
///     if (const auto saved = saver.finish()) ...  // at the end, or at once
///
/// All of it is collective and between steps; errors are agreed on. After an error, only destroy
/// the object, which removes the half-written step. A thread of each rank writes, even where the
/// rank only waits for it, so that the rank can answer others who finish much earlier. These
/// threads never communicate.
class CheckpointSaver {
public:
    /// `folder` is the root's on one rank, and null on the others. Allocates the snapshot. Model
    /// and folder must outlive it. Not collective.
    CheckpointSaver(Communicator& communicator, ModelRank& model, SaveFolder* folder,
                    SaveOptions options);
    ~CheckpointSaver();
    CheckpointSaver(const CheckpointSaver&) = delete;
    CheckpointSaver& operator=(const CheckpointSaver&) = delete;

    /// Host memory of this rank's snapshot.
    [[nodiscard]] uint64_t snapshot_bytes() const { return snapshot_.size(); }
    /// Bytes that a save writes, all ranks together.
    [[nodiscard]] uint64_t file_bytes() const;
    [[nodiscard]] bool pending() const { return pending_; }
    /// A save is pending, and at the last poll() not all ranks' rows were durable.
    [[nodiscard]] bool writing() const { return pending_ && !publishing_; }
    /// No save may be pending. Fills in `state.files`.
    void begin(TrainingState state);
    /// Advances a pending save without waiting.
    [[nodiscard]] std::optional<SaveReport> poll();
    /// Waits for a pending save.
    [[nodiscard]] std::optional<SaveReport> finish();

private:
    void take_snapshot();
    [[nodiscard]] std::string partial_path(size_t file) const;
    /// Runs on the thread: one file after the other, so that no more than one is open.
    void write();
    void publish(const std::vector<std::vector<std::byte>>& pieces_of_ranks);

    Communicator& communicator_;
    Device& device_;
    SaveFolder* folder_;
    SaveOptions options_;
    std::map<std::string, std::string> tokenizer_texts_;  ///< contents, by the names of the files
    std::string config_text_;
    std::string index_text_;              ///< of shards; empty: one file of weights
    std::vector<std::string> names_;      ///< of the files with tensors: weights, optimizer
    std::vector<SafetensorsPlan> plans_;  ///< of these files
    std::vector<StoredRows> rows_;        ///< on the device
    DeviceMemory snapshot_;
    std::vector<StoredRows> copied_;  ///< the same rows in the snapshot

    // The pending save:
    bool pending_ = false;
    bool publishing_ = false;  ///< all ranks' rows are durable
    TrainingState state_;
    SaveReport report_;
    int64_t begin_ns_ = 0;
    std::vector<Piece> pieces_;
    std::atomic<bool> stop_ = false;
    std::future<void> work_;  ///< this rank's part; invalid when done
};

}  // namespace vocabpipe
