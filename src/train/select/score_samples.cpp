// SPDX-License-Identifier: Apache-2.0
#include "src/train/select/score_samples.hpp"

#include "src/runtime/gathered.hpp"
#include "src/select/files/fixed_point.hpp"
#include "src/select/files/scores_file.hpp"
#include "src/support/output_check.hpp"
#include "src/train/evaluate/validation_loss.hpp"
#include "src/train/score/forward_run.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

/// Writes the rows of the ranks that have results, and sums them.
class RowWriter {
public:
    RowWriter(const ForwardRun& run, const ScoreOptions& options, const Corpus& corpus)
        : kind_(options.utility),
          count_(run.count()),
          hidden_(run.model().hidden_size),
          file_(run.world(), options.output,
                {.corpus = corpus,
                 .utility_kind = std::string(to_string(options.utility)),
                 .hidden_size = hidden_,
                 .loss = true,
                 .provenance = provenance(options, run)}) {}

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
                                                         const ForwardRun& run) {
        const ModelConfig& model = run.model();
        std::map<std::string, std::string> text{
            {"model.family", model.family},
            {"model.layers", std::to_string(model.num_layers)},
            {"model.hidden_size", std::to_string(model.hidden_size)},
            {"model.vocab_size", std::to_string(model.vocab_size)},
            {"score.eod_mask_loss", options.data.eod_mask_loss ? "true" : "false"},
            {"score.reset_attention_mask", options.data.reset_attention_mask ? "true" : "false"},
            {"score.reset_position_ids", options.data.reset_position_ids ? "true" : "false"}};
        const std::filesystem::path folder(run.checkpoint().folder());
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
                throw Error(ExitCode::wrong_values,
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
    Corpus corpus;
    ForwardRun run(world, options,
                   {.output = scores_output(),
                    .records = {.columns = {TokenRecord::margin}},
                    .hidden_sums = true,
                    .same = {"--utility " + std::string(to_string(options.utility))},
                    .describe = [&](const TrainingData& data) {
                        corpus = training_corpus(data, options.seq_length);
                        return std::vector<std::string>{"data " + readable(corpus.data)};
                    }});
    SampleScores scores(run.rank(), run.shape());
    RowWriter rows(run, options, corpus);
    const FillSequence fill = samples_to_evaluate(run.samples());
    run.each_step([&](int64_t first) { scores.load(first, run.count(), fill); },
                  [&] { scores.run(); }, [&] { rows.write(scores); });
    rows.publish();
    const auto samples = static_cast<double>(run.count());
    return {.samples = run.count(),
            .hidden_size = run.model().hidden_size,
            .mean_loss = sum_of_ranks(world, rows.loss_sum()) / samples,
            .mean_utility = sum_of_ranks(world, rows.utility_sum()) / samples /
                            static_cast<double>(kFixedPointOne)};
}

}  // namespace vocabpipe
