// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/output_check.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/evaluate/sequence_batch.hpp"
#include "src/train/score/forward_options.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/step_plan.hpp"
#include "vocabpipe/trained_rank.hpp"
#include "vocabpipe/world.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// What a forward run is for.
struct ForwardWork {
    OutputKind output;              ///< of ForwardOptions::output
    TokenRecordOptions records;     ///< StepWork::records
    bool hidden_sums = false;       ///< StepWork::hidden_sums
    std::vector<std::string> same;  ///< lines that must be the same on every rank
    /// Looks at the opened data and returns lines that must be the same on every rank; may throw.
    std::function<std::vector<std::string>(const TrainingData& data)> describe;
};

/// A saved model on all ranks of a world, and the samples of its training data, step by step:
///
///     ForwardRun run(world, options, work);
///     run.each_step([&] { run the step over run.batch() }, [&] { keep its results; may throw });
class ForwardRun {
public:
    /// Opens and checks model and data, plans, loads the weights. Options and world must outlive
    /// it. Collective; errors are agreed on.
    ForwardRun(Communicator& world, const ForwardOptions& options, const ForwardWork& work);

    [[nodiscard]] Communicator& world() const { return world_; }
    [[nodiscard]] const Checkpoint& checkpoint() const { return *checkpoint_; }
    [[nodiscard]] const ModelConfig& model() const { return model_; }
    /// In stream order.
    [[nodiscard]] const SampleSource& samples() const { return *samples_; }
    [[nodiscard]] int64_t count() const { return samples_->samples_per_epoch(); }
    /// Tokens of the sequences of the running step: those of all samples, or one of the lengths of
    /// --length-buckets, which follow each other.
    [[nodiscard]] int64_t seq_length() const { return group().seq_length; }
    /// How many sequences have this length.
    [[nodiscard]] int64_t sequences() const {
        return group().samples.empty() ? count() : std::ssize(group().samples);
    }
    /// The sample that sequence `i` of this length is.
    [[nodiscard]] int64_t sample_of(int64_t i) const {
        return group().samples.empty() ? i : group().samples[static_cast<size_t>(i)];
    }
    [[nodiscard]] TrainedRank& rank() { return *rank_; }
    [[nodiscard]] const EvaluationShape& shape() const { return shape_; }

    /// For every step: `load(first)`, which may throw on one rank only, with the first microbatch
    /// of the step among those of seq_length(); `run()`, collective; and `keep()`, which may throw
    /// on one rank only, after it. Collective.
    void each_step(const std::function<void(int64_t first)>& load, const std::function<void()>& run,
                   const std::function<void()>& keep);

private:
    /// Samples of one length; none are named where all samples have it.
    struct Group {
        int64_t seq_length = 0;
        std::vector<int64_t> samples;
    };
    [[nodiscard]] const Group& group() const { return groups_[group_]; }
    /// Sets groups_ from the lengths of the samples.
    void group_by_length();

    Communicator& world_;
    const ForwardOptions& options_;
    std::optional<Checkpoint> checkpoint_;
    ModelConfig model_;
    std::unique_ptr<const SampleSource> samples_;
    std::unique_ptr<Device> device_;
    std::unique_ptr<TrainedRank> rank_;
    EvaluationShape shape_;
    std::vector<Group> groups_;
    size_t group_ = 0;  ///< of the running step
};

}  // namespace vocabpipe
