// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/learning_rate.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/optimizer_step.hpp"
#include "vocabpipe/preference_step.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/step_batch.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::testing {

struct TrainingSetup {
    ModelConfig config;
    std::string family = "1f1b";
    RuleOptions rule{};                          ///< of the family
    int ranks = 1;                               ///< of a pipeline
    int replicas = 1;                            ///< of the pipeline
    int tensor = 1;                              ///< ranks that share a stage
    int tensor_pieces = 1;                       ///< in which they exchange each one's rows
    int expert = 1;                              ///< ranks that share the experts of a layer
    int expert_tensor = 1;                       ///< and of these, ranks that share each expert
    int context = 1;                             ///< ranks that share sequences
    ContextExchange context_exchange{};          ///< between them
    int pieces = 1;                              ///< LowerOptions::pieces
    bool overlap_pairs = true;                   ///< LowerOptions::overlap_pairs, where ranks share
    bool documents = false;                      ///< sequences are cut into documents
    const SampleSource* samples = nullptr;       ///< in place of toy_batch(), from sample 0 on
    std::vector<int64_t> shorter_lengths{};      ///< as in ModelPartition, of these samples
    size_t length_programs = 16;                 ///< as in TrainedRankOptions
    ArrangeSamples arrange{};                    ///< as in StepBatchOptions
    double moe_row_factor = kMoeRowFactor;       ///< memory for their rows
    ExpertPieces expert_pieces{};                ///< in which they exchange rows
    int64_t bucket_piece = kBucketPieceOfHosts;  ///< as in LowerOptions
    ZeroOptions zero{};                          ///< what replicas share
    int microbatches = 4;                        ///< of a replica
    VocabMode mode = VocabMode::none;
    Recompute recompute = Recompute::none;
    int steps = 30;
    int64_t sequences = 2;
    LearningRateSchedule learning_rate{
        .lr = 1e-2, .min_lr = 1e-3, .warmup_iters = 3, .decay_iters = 30};
    OptimizerOptions optimizer{};
    std::shared_ptr<const TokenLoss> loss{};  ///< ModelPartition::loss
    /// Samples are pairs, and `loss` is a PolicyLoss: steps begin with PreferenceStep of this beta.
    std::optional<double> preference_beta{};
    /// ModelPartition::frozen; the schedule is without the passes that only these need.
    std::vector<bool> frozen{};
    uint64_t seed = 7;
    bool all_ignored = false;
    /// Device of a rank, made on its thread; empty: the host.
    std::function<std::unique_ptr<Device>(int rank)> make_device{};
    double timeout_seconds = 30;  ///< without progress: a hang on any machine
};

/// Two microbatches of a schedule on a mesh. `model`(layers) makes the model, of one layer more
/// than the schedule has stages and with a vocabulary of so many rows.
[[nodiscard]] TrainingSetup setup_on_mesh(const std::string& schedule, VocabMode mode,
                                          const Mesh& mesh, int64_t vocab_size,
                                          const std::function<ModelConfig(int)>& model);

struct Training {
    std::vector<double> losses, grad_norms;
    std::vector<PreferenceMeans> pairs;             ///< of every step, with preference_beta
    std::vector<std::vector<double>> depth_losses;  ///< [step][depth]
    std::vector<bool> updated;
    std::vector<std::optional<RouterResult>> routers;
    /// By logical name, of every rank that has it.
    std::multimap<std::string, std::vector<float>> correction_biases;
    /// Master weights and the gradients of the last step, whole, by logical name; of a tied weight
    /// that lives on two ranks, the second is "... (copy)".
    std::map<std::string, std::vector<float>> weights, gradients;
};

/// Runs the steps as the trainer does, through Executor and OptimizerStep, on a world of threads.
/// The batch of a step is toy_batch(step).
[[nodiscard]] Training train_on_threads(const TrainingSetup& setup);

/// Sequences that can be learned: the next token is (5 token + 3) mod V, from a random start.
[[nodiscard]] Batch toy_batch(const TrainingSetup& setup, int step);

/// Microbatches replica, replica + replicas, ... of a batch: what that replica trains on.
[[nodiscard]] Batch part_of(const Batch& batch, int replica, int replicas);

/// The tokens of a batch that a context rank trains on.
[[nodiscard]] Batch part_of(const Batch& batch, const ContextCut& cut);

/// The largest difference of any element of `expected`, weights or gradients, relative to the
/// largest value of its tensor; infinite if a tensor is missing, or there is none.
[[nodiscard]] double largest_difference(const std::map<std::string, std::vector<float>>& expected,
                                        const std::map<std::string, std::vector<float>>& actual);

/// Empty if equal bit for bit, else the first difference.
[[nodiscard]] std::string first_difference(const Training& expected, const Training& actual);

}  // namespace vocabpipe::testing
