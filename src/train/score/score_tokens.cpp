// SPDX-License-Identifier: Apache-2.0
#include "src/train/score/score_tokens.hpp"

#include "src/model/sequence_output.hpp"
#include "src/runtime/gathered.hpp"
#include "src/support/output_check.hpp"
#include "src/train/score/forward_run.hpp"
#include "src/train/score/score_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
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
          sums_(static_cast<size_t>(std::ranges::count_if(
              wanted_, [&](TokenRecord one) { return one != TokenRecord::top_logprobs; }))) {}

    /// Takes what only all ranks together have of the last step. Collective.
    void gather() {
        if (made_.has(TokenRecord::label_rank)) {
            ranks_ = run_.rank().records(TokenRecord::label_rank);
        }
    }
    /// Writes the rows of the step that began with microbatch `first`, after gather().
    void write(int64_t first) {
        const EvaluationShape& shape = run_.shape();
        const int rank = run_.world().rank();
        if (shape.mesh.pipeline_rank(rank) != shape.loss_rank) return;
        const ConstTensor found = run_.rank().output()->records();
        values_.resize(static_cast<size_t>(found.size()));
        run_.rank().device().download(static_cast<const std::byte*>(found.data),
                                      std::as_writable_bytes(std::span(values_)));
        const int replica = shape.mesh.replica(rank);
        padded_.assign(static_cast<size_t>(shape.seq_length), 0);
        for (int64_t row = 0; row < shape.sequences_per_replica(); ++row) {
            const int64_t sequence = shape.sequence_of(first, row, replica);
            if (sequence < run_.sequences()) write_row(row, run_.sample_of(sequence));
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
    /// A number of a sequence's tokens, `number` from 0 among all that are made.
    [[nodiscard]] std::span<const float> values_of(int64_t row, int64_t number) const {
        const EvaluationShape& shape = run_.shape();
        const int64_t microbatch = row / shape.micro_batch_size;
        // A microbatch of shorter sequences, too, begins where the longest would (OutputLayer).
        const int64_t first = microbatch * made_.size() * shape.micro_batch_size * shape.seq_length;
        const int64_t of_row = number * shape.micro_batch_size + row % shape.micro_batch_size;
        return std::span(values_).subspan(static_cast<size_t>(first + of_row * run_.seq_length()),
                                          static_cast<size_t>(run_.seq_length()));
    }
    /// A record of one number.
    [[nodiscard]] std::span<const float> values_of(int64_t row, TokenRecord record) const {
        if (record != TokenRecord::label_rank) return values_of(row, made_.index_of(record));
        const auto length = static_cast<size_t>(run_.seq_length());
        return std::span(ranks_).subspan(static_cast<size_t>(row) * length, length);
    }
    void write_row(int64_t row, int64_t sample) {
        labels_ += batch_.labels(row).count;
        size_t single = 0;
        for (const TokenRecord record : wanted_) {
            if (record == TokenRecord::top_logprobs) {
                write_list(row, sample);
                continue;
            }
            const std::span<const float> values = values_of(row, record);
            check(values, sample, record);
            sums_[single++] += std::accumulate(values.begin(), values.end(), 0.0);
            std::ranges::copy(values, padded_.begin());
            file_->write(std::string(to_string(record)), sample * std::ssize(padded_),
                         std::span<const float>(padded_));
        }
    }
    void write_list(int64_t row, int64_t sample) {
        const int64_t length = run_.shape().seq_length;
        const int64_t count = made_.best_count();
        std::vector<float> logprobs(static_cast<size_t>(length * count));
        std::vector<int32_t> ids(logprobs.size());
        for (int64_t k = 0; k < count; ++k) {
            const int64_t first = made_.index_of(TokenRecord::top_logprobs);
            const std::span<const float> values = values_of(row, first + k);
            const std::span<const float> names = values_of(row, first + count + k);
            check(values, sample, TokenRecord::top_logprobs);
            for (int64_t n = 0; n < run_.seq_length(); ++n) {
                const auto to = static_cast<size_t>(n * count + k);
                logprobs[to] = values[static_cast<size_t>(n)];
                ids[to] = static_cast<int32_t>(names[static_cast<size_t>(n)]);
            }
        }
        const int64_t at = sample * length * count;
        file_->write(std::string(to_string(TokenRecord::top_logprobs)), at,
                     std::span<const float>(logprobs));
        file_->write(kTopIds, at, std::span<const int32_t>(ids));
    }
    /// A label that is not allowed has -infinity.
    static void check(std::span<const float> values, int64_t sample, TokenRecord record) {
        if (std::ranges::none_of(values, [](float value) { return std::isnan(value); })) return;
        throw Error(
            ExitCode::wrong_values,
            "sample " + std::to_string(sample) + ": record " + std::string(to_string(record)) +
                " is not a number: the model's training has diverged; load an earlier step");
    }

    ForwardRun& run_;
    const SequenceBatch& batch_;
    TokenRecords made_;
    std::vector<TokenRecord> wanted_;
    std::unique_ptr<TensorOutput> file_;
    std::vector<float> values_;  ///< of the last step
    std::vector<float> ranks_;   ///< TokenRecord::label_rank of the last step
    std::vector<float> padded_;  ///< a number of a sequence, and 0 up to the longest
    std::vector<double> sums_;   ///< [record of one number]
    int64_t labels_ = 0;
};

}  // namespace

TokenScoreTotals score_tokens(Communicator& world, const TokenScoreOptions& options) {
    world.agree([&] {
        check_score_file_name(options.output, options.records.columns);
        if (options.records.columns.empty()) {
            throw UsageError("--records: names none; use at least one");
        }
    });
    std::string names;
    for (const TokenRecord record : options.records.columns.list()) {
        names += " " + std::string(to_string(record));
    }
    names += " " + std::to_string(options.records.columns.best_count());
    ForwardRun run(world, options,
                   {.output = table_output(),
                    .records = options.records,
                    .same = {"--records" + names,
                             "--temperature " + std::to_string(options.records.temperature)},
                    .describe = [](const TrainingData& data) { return data.fingerprint(); }});
    SequenceBatch batch(run.shape(), world.rank());
    RecordWriter rows(run, batch, options);
    const FillSequence fill = [&](int64_t sequence, Sample& to) {
        run.samples().sample(run.sample_of(sequence), to);
    };
    int64_t running = 0;
    run.each_step(
        [&](int64_t first) {
            running = first;
            batch.set_length(run.seq_length());
            batch.load(first, run.sequences(), fill);
        },
        [&] {
            // Plain cross-entropies, of each sequence.
            if (SequenceOutput* const output = sequence_output(run.rank().output())) {
                output->evaluate_next_step(run.shape().micro_batch_size);
            }
            run.rank().run(batch.microbatches());
            rows.gather();
        },
        [&] { rows.write(running); });
    rows.publish();
    return rows.totals();
}

}  // namespace vocabpipe
