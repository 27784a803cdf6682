// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/run_data.hpp"

#include "src/train/data/check_tokens.hpp"
#include "src/train/options/check_options.hpp"
#include "src/train/run/resume.hpp"
#include "vocabpipe/model_flops.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace vocabpipe {

RunData::RunData(const TrainOptions& options, int rank)
    : options_(options), rank_(rank), lengths_{options.model.seq_length} {
    const bool trains = !options.evaluation.skip_train;
    if (trains || validates(options)) {
        data_.emplace(options.data);
        // One rank scans; agree() throws its error on all.
        if (rank == 0) data_->check(options.model.vocab_size);
    }
    evaluation_ = open_evaluation_data(options, data_ ? &*data_ : nullptr);
    if (rank == 0) watched_.emplace(files());
    if (!trains) return;
    const TokenDatasetOptions cut{.seq_length = options.model.seq_length,
                                  .seed = options.seed,
                                  .vocab_size = options.model.vocab_size};
    lengths_ = data_->length_buckets(cut.seq_length, [&](int64_t seq_length) {
        return layers_flops_of_sequence(options.model, seq_length);
    });
    TrainingData::OpenColumns columns;
    if (!options.data.columns.empty()) {
        columns = [this](int64_t samples) { return open_columns(samples); };
    }
    if (!options.data.subset.empty()) {
        chosen_ = std::make_shared<const ChosenSamples>("--data-subset", options.data.subset,
                                                        *data_, cut.seq_length);
        if (columns) columns(training_corpus(*data_, cut.seq_length).samples);
        samples_ = data_->chosen_samples(cut, chosen_, columns_);
    } else if (options.loss.compares_pairs()) {
        samples_ = data_->pairs(cut, lengths_, columns);
    } else {
        samples_ = data_->samples(DataSplit::train, cut, lengths_, columns);
    }
    std::ranges::reverse(lengths_);
}

std::shared_ptr<const SampleColumns> RunData::open_columns(int64_t samples) {
    columns_ =
        std::make_shared<const ColumnsFile>("--columns", options_.data.columns,
                                            ColumnsWanted{.columns = options_.loss.columns(),
                                                          .known = every_loss_column(),
                                                          .samples = samples,
                                                          .seq_length = options_.model.seq_length,
                                                          .vocab_size = options_.model.vocab_size});
    if (rank_ == 0) columns_->check(kCheckedTokens);
    return columns_;
}

void RunData::start_loading(const Mesh& mesh, ArrangeSamples arrange) {
    batches_.emplace(*samples_, StepBatchOptions{.micro_batch_size = options_.micro_batch_size,
                                                 .replica = mesh.replica(rank_),
                                                 .replicas = mesh.data,
                                                 .context_rank = mesh.place(rank_).context,
                                                 .context = mesh.context,
                                                 .arrange = std::move(arrange),
                                                 .later = later_tokens(options_.model)});
}

int64_t RunData::tokens_before(int64_t samples) const {
    int64_t tokens = 0;
    for (int64_t i = 0; i < samples; ++i) tokens += samples_->length(i);
    return tokens;
}

std::vector<std::string> RunData::fingerprint() const {
    std::vector<std::string> lines = evaluation_.fingerprint();
    if (data_) {
        for (std::string& line : data_->fingerprint()) lines.push_back(std::move(line));
    }
    if (chosen_) lines.push_back("--data-subset: " + subset());
    if (columns_) lines.push_back("--columns: " + columns_->identity());
    for (std::string& line : packing()) lines.push_back(std::move(line));
    return lines;
}

std::vector<std::string> RunData::packing() const {
    std::vector<std::string> lines;
    const auto add = [&](std::string_view part, const SampleSource* samples) {
        if (samples == nullptr) return;
        for (const std::string& line : samples->packing()) {
            lines.push_back(std::string(part) + " data: " + line);
        }
    };
    add(to_string(DataSplit::train), samples_.get());
    add(to_string(DataSplit::valid), evaluation_.valid.get());
    return lines;
}

std::vector<std::string> RunData::flags() const {
    std::vector<std::string> flags;
    if (data_) flags = data_->flags();
    if (samples_) {
        flags.push_back("samples-per-epoch " + std::to_string(samples_->samples_per_epoch()));
    }
    if (chosen_) flags.push_back(kSubsetRecord + (' ' + subset()));
    if (columns_) flags.push_back("columns " + columns_->identity());
    return flags;
}

std::string RunData::subset() const {
    return chosen_ ? chosen_->identity() : "all samples";
}

std::vector<std::string> RunData::files() const {
    std::vector<std::string> files = data_ ? data_->files() : std::vector<std::string>();
    if (const std::string& set = options_.evaluation.multiple_choice_path; !set.empty()) {
        files.push_back(set);
    }
    for (const std::string& file : {options_.data.subset, options_.data.columns}) {
        if (!file.empty()) files.push_back(file);
    }
    return files;
}

std::vector<std::string> RunData::changes() {
    return watched_ ? watched_->changes() : std::vector<std::string>();
}

}  // namespace vocabpipe
