// SPDX-License-Identifier: Apache-2.0
#include "src/train/score/score_tokens.hpp"

#include "src/model/sequence_output.hpp"
#include "src/runtime/gathered.hpp"
#include "src/support/output_check.hpp"
#include "src/train/evaluate/validation_loss.hpp"
#include "src/train/score/forward_run.hpp"
#include "src/train/score/score_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

/// Writes the rows of the ranks that have records, and sums them.
class RecordWriter {
public:
    RecordWriter(ForwardRun& run, const SequenceBatch& batch, const TokenScoreOptions& options)
        : run_(run),
          batch_(batch),
          made_(options.records.columns | TokenRecords{TokenRecord::loss}),
          wanted_(options.records.columns.list()),
          file_(open_score_file(run.world(), options.output, options.records.columns, run.count(),
                                run.shape().seq_length)),
          sums_(wanted_.size()) {}

    /// Writes the rows of the step that began with microbatch `first`.
    void write(int64_t first) {
        const EvaluationShape& shape = run_.shape();
        const int rank = run_.world().rank();
        if (shape.mesh.pipeline_rank(rank) != shape.loss_rank) return;
        const ConstTensor found = run_.rank().output()->records();
        values_.resize(static_cast<size_t>(found.size()));
        run_.rank().device().download(static_cast<const std::byte*>(found.data),
                                      std::as_writable_bytes(std::span(values_)));
        const int replica = shape.mesh.replica(rank);
        for (int64_t row = 0; row < shape.sequences_per_replica(); ++row) {
            const int64_t sample = shape.sequence_of(first, row, replica);
            if (sample < run_.count()) write_row(row, sample);
        }
    }
    void publish() { file_->publish(); }

    [[nodiscard]] TokenScoreTotals totals() const {
        TokenScoreTotals totals{.samples = run_.count()};
        const auto all = [&](double mine) {
            double sum = 0;
            for (const double part : gathered_values(run_.world(), mine)) sum += part;
            return sum;
        };
        const double labels = all(static_cast<double>(labels_));
        totals.labels = static_cast<int64_t>(labels);
        for (const double sum : sums_) totals.means.push_back(all(sum) / labels);
        return totals;
    }

private:
    void write_row(int64_t row, int64_t sample) {
        const EvaluationShape& shape = run_.shape();
        const auto length = static_cast<size_t>(shape.seq_length);
        labels_ += batch_.labels(row).count;
        for (size_t i = 0; i < wanted_.size(); ++i) {
            const int64_t of_microbatch = row / shape.micro_batch_size * made_.size();
            const int64_t at =
                (of_microbatch + made_.index_of(wanted_[i])) * shape.micro_batch_size +
                row % shape.micro_batch_size;
            const auto values =
                std::span<const float>(values_).subspan(static_cast<size_t>(at) * length, length);
            for (const float value : values) {
                // A label that is not allowed has -infinity.
                if (std::isnan(value)) {
                    throw Error(ExitCode::not_finite,
                                "sample " + std::to_string(sample) + ": record " +
                                    std::string(to_string(wanted_[i])) +
                                    " is not a number: the model's training has diverged; load an "
                                    "earlier step");
                }
                sums_[i] += double{value};
            }
            file_->write(std::string(to_string(wanted_[i])), sample * shape.seq_length, values);
        }
    }

    ForwardRun& run_;
    const SequenceBatch& batch_;
    TokenRecords made_;
    std::vector<TokenRecord> wanted_;
    std::unique_ptr<TensorOutput> file_;
    std::vector<float> values_;  ///< of the last step
    std::vector<double> sums_;   ///< [record wanted]
    int64_t labels_ = 0;
};

}  // namespace

TokenScoreTotals score_tokens(Communicator& world, const TokenScoreOptions& options) {
    world.agree([&] {
        check_score_file_name(options.output);
        if (options.records.columns.empty()) {
            throw UsageError("--records: names none; use at least one");
        }
    });
    std::string names;
    for (const TokenRecord record : options.records.columns.list()) {
        names += " " + std::string(to_string(record));
    }
    ForwardRun run(world, options,
                   {.output = table_output(),
                    .records = options.records,
                    .same = {"--records" + names,
                             "--temperature " + std::to_string(options.records.temperature)},
                    .describe = [](const TrainingData& data) { return data.fingerprint(); }});
    SequenceBatch batch(run.shape(), world.rank());
    RecordWriter rows(run, batch, options);
    const FillSequence fill = samples_to_evaluate(run.samples());
    int64_t running = 0;
    run.each_step(
        [&](int64_t first, int64_t count) {
            running = first;
            batch.load(first, count, fill);
        },
        [&] {
            // Plain cross-entropies, of each sequence.
            if (SequenceOutput* const output = sequence_output(run.rank().output())) {
                output->evaluate_next_step(run.shape().micro_batch_size);
            }
            run.rank().run(batch.microbatches());
        },
        [&] { rows.write(running); });
    rows.publish();
    return rows.totals();
}

}  // namespace vocabpipe
