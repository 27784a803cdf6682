// SPDX-License-Identifier: Apache-2.0
#include "src/train/select/score_samples.hpp"

#include "src/runtime/gathered.hpp"
#include "src/select/files/fixed_point.hpp"
#include "src/select/files/scores_file.hpp"
#include "src/step/same_on_every_rank.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/support/process_memory.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/evaluate/validation_loss.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// The model and the data, opened and checked against each other.
struct ScoreInputs {
    ModelConfig model;
    Corpus corpus;
    std::unique_ptr<const SampleSource> samples;
};

void check_score_output(const ScoreOptions& options, const Checkpoint& checkpoint,
                        const TrainingData& data) {
    std::vector<std::string> inputs = data.files();
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint.folder())) {
        inputs.push_back(entry.path().string());
    }
    OutputCheck(std::move(inputs)).add("--output", options.output, scores_output());
    const OutputFile probe(options.output);  // fails before the work rather than after it
}

ScoreInputs open_score_inputs(Communicator& world, const ScoreOptions& options,
                              std::optional<Checkpoint>& checkpoint) {
    ScoreInputs inputs;
    world.agree([&] {
        checkpoint.emplace(find_checkpoint(options.load, /*weights_only=*/true));
        checkpoint->verify_metadata();
        inputs.model = checkpoint->config();
        check_positions(inputs.model, options.seq_length);
        inputs.model.seq_length = options.seq_length;
        inputs.model.check();
        const TrainingData data(options.data);
        if (world.rank() == 0) {
            check_score_output(options, *checkpoint, data);
            data.check(inputs.model.vocab_size);
        }
        inputs.corpus = training_corpus(data, options.seq_length);
        inputs.samples = data.samples_in_order(
            {.seq_length = options.seq_length, .vocab_size = inputs.model.vocab_size});
    });
    check_same_on_every_rank(
        world,
        {"data " + readable(inputs.corpus.data),
         "--seq-length " + std::to_string(options.seq_length),
         "--utility " + std::string(to_string(options.utility)), "--output " + options.output},
        ExitCode::input_file, "use the same files and flags on every rank");
    return inputs;
}

StepPlan plan_scores(const ScoreOptions& options, const ModelConfig& model, int ranks,
                     const Device& device, int threads) {
    const int pipeline = options.pipeline == 0 ? ranks : options.pipeline;
    if (pipeline < 1 || ranks % pipeline != 0) {
        throw UsageError("--pipeline-model-parallel-size " + std::to_string(pipeline) +
                         ": must divide the number of ranks, " + std::to_string(ranks));
    }
    // Enough microbatches to fill the pipeline, few enough that their samples fit the memory.
    constexpr int kMicrobatchesPerRank = 4;
    return plan_step(model,
                     {.ranks = pipeline,
                      .replicas = ranks / pipeline,
                      .threads_per_rank = threads,
                      .operators = &device.operators(),
                      .communication = device.communication_order()},
                     {.name = options.schedule,
                      .vocab_mode = options.vocab_mode,
                      .rule = {.chunks = options.chunks}},
                     {.microbatches = kMicrobatchesPerRank * pipeline,
                      .micro_batch_size = options.micro_batch_size,
                      .evaluation = true,
                      .optimizer = false,
                      .training = false,
                      .records = {.columns = {TokenRecord::margin}},
                      .hidden_sums = true});
}

/// Checks that weights and buffers of all ranks that share this one's memory fit: an error message
/// instead of a failed allocation or a killed process.
void check_score_memory(const StepPlan& plan, const std::vector<RankPlacement>& placements,
                        int of_rank) {
    const RankPlacement& mine = placements[static_cast<size_t>(of_rank)];
    int64_t planned = 0;
    for (int rank = 0; rank < std::ssize(placements); ++rank) {
        const RankPlacement& place = placements[static_cast<size_t>(rank)];
        if (place.host != mine.host || place.device != mine.device) continue;
        const auto k = static_cast<size_t>(plan.mesh().pipeline_rank(rank));
        planned += persistent_bytes(plan.model, plan.partition, plan.schedule, rank).total() +
                   static_cast<int64_t>(plan.lowered.pipeline[k].arena_bytes);
    }
    const int64_t available =
        mine.memory ? static_cast<int64_t>(mine.memory->free) : available_memory();
    if (planned <= available) return;
    throw OutOfMemoryError("scoring needs " + mib_text(planned) + " on " + mine.host + ", but " +
                           mib_text(available) +
                           " are available; use a smaller --micro-batch-size, or more hosts");
}

/// Writes the rows of the ranks that have results, and sums them.
class RowWriter {
public:
    RowWriter(Communicator& world, const ScoreOptions& options, const ScoreInputs& inputs,
              const Checkpoint& checkpoint)
        : kind_(options.utility),
          count_(inputs.corpus.samples),
          hidden_(inputs.model.hidden_size),
          file_(world, options.output,
                {.corpus = inputs.corpus,
                 .utility_kind = std::string(to_string(options.utility)),
                 .hidden_size = inputs.model.hidden_size,
                 .loss = true,
                 .provenance = provenance(options, inputs, checkpoint)}) {}

    /// Writes the rows of the current step.
    void write(const SampleScores& scores) {
        if (!scores.has_results()) return;
        const EvaluationShape& shape = scores.shape();
        for (int64_t row = 0; row < shape.sequences_per_replica();) {
            // The samples of a microbatch are consecutive.
            const int64_t first = scores.sample(row);
            const int64_t rows = std::min(shape.micro_batch_size, count_ - first);
            if (rows > 0) write_rows(scores, row, first, rows);
            row += shape.micro_batch_size;
        }
    }
    void publish() { file_.publish(); }
    [[nodiscard]] double loss_sum() const { return loss_sum_; }
    [[nodiscard]] double utility_sum() const { return utility_sum_; }

private:
    static std::map<std::string, std::string> provenance(const ScoreOptions& options,
                                                         const ScoreInputs& inputs,
                                                         const Checkpoint& checkpoint) {
        std::map<std::string, std::string> text{
            {"model.family", inputs.model.family},
            {"model.layers", std::to_string(inputs.model.num_layers)},
            {"model.hidden_size", std::to_string(inputs.model.hidden_size)},
            {"model.vocab_size", std::to_string(inputs.model.vocab_size)},
            {"score.eod_mask_loss", options.data.eod_mask_loss ? "true" : "false"},
            {"score.reset_attention_mask", options.data.reset_attention_mask ? "true" : "false"},
            {"score.reset_position_ids", options.data.reset_position_ids ? "true" : "false"}};
        const std::filesystem::path folder(checkpoint.folder());
        text["model.name"] =
            (folder.has_filename() ? folder : folder.parent_path()).filename().string();
        return text;
    }

    void write_rows(const SampleScores& scores, int64_t row, int64_t first, int64_t rows) {
        utility_.clear();
        loss_.clear();
        embedding_.resize(static_cast<size_t>(rows * hidden_));
        for (int64_t i = 0; i < rows; ++i) {
            const SampleSums sums = scores.sums(row + i);
            const double mean = sums.weight == 0 ? 0 : sums.loss / sums.weight;
            const auto embedding =
                std::span(embedding_)
                    .subspan(static_cast<size_t>(i * hidden_), static_cast<size_t>(hidden_));
            scores.hidden_mean(row + i, embedding);
            const bool finite =
                std::isfinite(mean) && std::isfinite(sums.margin) &&
                std::ranges::all_of(embedding, [](float x) { return std::isfinite(x); });
            if (!finite) {
                throw Error(ExitCode::not_finite,
                            "sample " + std::to_string(first + i) +
                                ": the model's loss or hidden state is not finite: its training "
                                "has diverged; load an earlier step");
            }
            loss_.push_back(static_cast<float>(mean));
            utility_.push_back(utility_of(kind_, sums));
            loss_sum_ += mean;
            utility_sum_ += utility_.back();
        }
        file_.write_utility(first, utility_);
        file_.write_embedding(first, embedding_);
        file_.write_loss(first, loss_);
    }

    UtilityKind kind_;
    int64_t count_, hidden_;
    ScoresWriter file_;
    std::vector<int32_t> utility_;
    std::vector<float> embedding_, loss_;
    double loss_sum_ = 0, utility_sum_ = 0;
};

double sum_of_ranks(Communicator& world, double mine) {
    double sum = 0;
    for (const double part : gathered_values(world, mine)) sum += part;
    return sum;
}

}  // namespace

ScoreTotals score_samples(Communicator& world, const ScoreOptions& options) {
    std::optional<Checkpoint> checkpoint;
    const ScoreInputs inputs = open_score_inputs(world, options, checkpoint);
    std::vector<RankPlacement> placements = find_placements(world);
    const RankPlacement& place = placements[static_cast<size_t>(world.rank())];
    std::unique_ptr<Device> device;
    world.agree(
        [&] { device = options.make_device ? options.make_device(place) : make_host_device(); });
    describe_devices(world, *device, placements);
    std::optional<StepPlan> plan;
    world.agree([&] {
        plan =
            plan_scores(options, inputs.model, world.size(), *device,
                        options.threads_per_rank > 0 ? options.threads_per_rank : place.threads());
        check_score_memory(*plan, placements, world.rank());
    });
    checkpoint->verify(world);
    TrainedRank rank(world, *device, *plan, {.initialise = false});
    world.agree([&] { checkpoint->fill(rank.model(), rank.context()); });

    const int64_t count = inputs.corpus.samples;
    SampleScores scores(rank, {.micro_batch_size = options.micro_batch_size,
                               .seq_length = options.seq_length,
                               .microbatches = plan->microbatches(),
                               .mesh = plan->mesh(),
                               .loss_rank = plan->schedule.output.owners().front(),
                               .form = inputs.samples->form()});
    RowWriter rows(world, options, inputs, *checkpoint);
    const FillSequence fill = samples_to_evaluate(*inputs.samples);
    const int64_t step = scores.shape().microbatches_per_step();
    const int64_t all = scores.shape().microbatches_of(count);
    for (int64_t first = 0; first < all; first += step) {
        world.agree([&] {
            if (first > 0) rows.write(scores);
            const int signal = options.ending_signal ? options.ending_signal() : 0;
            if (signal != 0) {
                throw Error(static_cast<ExitCode>(128 + signal),
                            "ended by signal " + std::to_string(signal) + " before " +
                                options.output + " was complete; nothing was written");
            }
            scores.load(first, count, fill);
        });
        scores.run();
        if (world.rank() == 0 && options.progress) {
            options.progress(std::min((first + step) * options.micro_batch_size, count), count);
        }
    }
    world.agree([&] { rows.write(scores); });
    rows.publish();
    const auto samples = static_cast<double>(count);
    return {.samples = count,
            .hidden_size = inputs.model.hidden_size,
            .mean_loss = sum_of_ranks(world, rows.loss_sum()) / samples,
            .mean_utility = sum_of_ranks(world, rows.utility_sum()) / samples /
                            static_cast<double>(kFixedPointOne)};
}

}  // namespace vocabpipe
