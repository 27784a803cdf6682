// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/batch_loader.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/data/watched_files.hpp"
#include "src/train/evaluate/evaluation.hpp"
#include "src/train/options/train_options.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "src/train/select/columns_file.hpp"
#include "vocabpipe/mesh.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// The data of a run: batches to train on, and data to evaluate on.
class RunData {
public:
    /// Opens all files; rank 0 also scans the tokens and watches the files. InputFileError,
    /// UsageError. `rank`: of the world.
    RunData(const TrainOptions& options, int rank);

    /// Lengths that the sequences of a step may have, descending from --seq-length.
    [[nodiscard]] const std::vector<int64_t>& lengths() const { return lengths_; }

    /// Makes batches() for this rank of the mesh. Call once, in a run that trains. `arrange` as in
    /// StepBatchOptions.
    void start_loading(const Mesh& mesh, ArrangeSamples arrange);

    /// What must be the same on every rank.
    [[nodiscard]] std::vector<std::string> fingerprint() const;
    /// How documents were packed, a line per data set; empty: they were not. Before
    /// take_evaluation_data().
    [[nodiscard]] std::vector<std::string> packing() const;
    /// "--flag value" of the flags that decide which samples a step sees.
    [[nodiscard]] std::vector<std::string> flags() const;
    /// ChosenSamples::identity(); "all samples" without --data-subset.
    [[nodiscard]] std::string subset() const;
    [[nodiscard]] std::vector<std::string> files() const;
    /// One line per file that changed since it was opened or since the last call: a later start
    /// would read something else. On rank 0.
    [[nodiscard]] std::vector<std::string> changes();

    /// Tokens of the first `samples` samples to train on.
    [[nodiscard]] int64_t tokens_before(int64_t samples) const;
    /// To train on, in a run that trains.
    [[nodiscard]] const SampleSource& samples() const { return *samples_; }
    /// After start_loading().
    [[nodiscard]] BatchLoader& batches() { return *batches_; }
    /// Call once.
    [[nodiscard]] EvaluationData take_evaluation_data() { return std::move(evaluation_); }

private:
    /// Opens --columns of so many samples; rank 0 also reads its numbers.
    std::shared_ptr<const SampleColumns> open_columns(int64_t samples);

    const TrainOptions& options_;
    int rank_;
    std::vector<int64_t> lengths_;
    std::optional<TrainingData> data_;
    EvaluationData evaluation_;
    std::optional<WatchedFiles> watched_;          ///< on rank 0
    std::shared_ptr<const ChosenSamples> chosen_;  ///< null: all
    std::shared_ptr<const ColumnsFile> columns_;   ///< null: none
    std::unique_ptr<const SampleSource> samples_;  ///< to train on
    std::optional<BatchLoader> batches_;
};

}  // namespace vocabpipe
