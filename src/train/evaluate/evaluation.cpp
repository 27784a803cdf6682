// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/evaluation.hpp"

#include "src/runtime/wait.hpp"
#include "src/support/crc32c.hpp"
#include "src/train/options/check_options.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace vocabpipe {

namespace {

EvaluationShape shape_of(const TrainingPlan& plan, const EvaluationData& data) {
    return {.micro_batch_size = plan.options().micro_batch_size,
            .seq_length = plan.options().model.seq_length,
            .microbatches = plan.microbatches(),
            .mesh = plan.mesh(),
            .loss_rank = plan.schedule().output.owners().front(),
            .form = data.valid ? data.valid->form() : SampleForm()};
}

}  // namespace

EvaluationData open_evaluation_data(const TrainOptions& options, const TrainingData* data) {
    EvaluationData opened;
    if (validates(options)) {
        opened.valid = data->samples(DataSplit::valid, {.seq_length = options.model.seq_length,
                                                        .seed = options.seed,
                                                        .shuffle = false,
                                                        .vocab_size = options.model.vocab_size});
    }
    if (const std::string& path = options.evaluation.multiple_choice_path; !path.empty()) {
        opened.choices.emplace(path, ChoiceLimits{.vocab_size = options.model.vocab_size,
                                                  .seq_length = options.model.seq_length});
    }
    return opened;
}

std::vector<std::string> EvaluationData::fingerprint() const {
    if (!choices) return {};
    return {"multiple choice: " + std::to_string(choices->examples().size()) +
            " examples, checksum " + std::to_string(crc32c(std::as_bytes(choices->stream())))};
}

std::string EvaluationResult::line() const {
    char text[256];
    std::snprintf(text, sizeof text, " validation loss at iteration %lld |",
                  static_cast<long long>(step));
    std::string line = text;
    if (validation && validation->tokens == 0) {
        line += " no labels: --eod-mask-loss or loss weights of 0 leave none |";
    } else if (validation) {
        std::snprintf(text, sizeof text, " lm loss value: %.6f | PPL: %.6g | %lld tokens |",
                      validation->loss, validation->perplexity(),
                      static_cast<long long>(validation->tokens));
        line += text;
    }
    if (choices) {
        std::snprintf(text, sizeof text, " multiple choice: %lld/%lld = %.4f |",
                      static_cast<long long>(choices->right),
                      static_cast<long long>(choices->examples), choices->accuracy());
        line += text;
    }
    std::snprintf(text, sizeof text, " %.2f s", seconds);
    return line + text;
}

EvaluationMetrics EvaluationResult::metrics() const {
    EvaluationMetrics found{.step = step,
                            .eval_loss = {},
                            .eval_ppl = {},
                            .choice_accuracy = {},
                            .eval_seconds = seconds};
    if (validation && validation->tokens > 0) {
        found.eval_loss = validation->loss;
        found.eval_ppl = validation->perplexity();
    }
    if (choices) found.choice_accuracy = choices->accuracy();
    return found;
}

Evaluation::Evaluation(const TrainingPlan& plan, TrainedRank& rank, EvaluationData data,
                       std::function<bool()> abandon)
    : options_(plan.options()),
      data_(std::move(data)),
      losses_(rank, plan.evaluation_index(), shape_of(plan, data_), std::move(abandon)) {}

bool Evaluation::due(int64_t step) const {
    return step % options_.evaluation.interval == 0 || step == options_.train_iters;
}

EvaluationResult Evaluation::run(int64_t step) {
    const int64_t begin = now_ns();
    EvaluationResult result{.step = step, .validation = {}, .choices = {}};
    if (data_.valid) {
        const int64_t batch = options_.global_batch_size;
        // At most one epoch; this also keeps the product small.
        const int64_t batches =
            std::min(options_.evaluation.iters, data_.valid->samples_per_epoch() / batch + 1);
        result.validation = validation_loss(losses_, *data_.valid, batches * batch);
    }
    if (data_.choices) result.choices = choice_accuracy(losses_, *data_.choices);
    result.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    return result;
}

}  // namespace vocabpipe
