// SPDX-License-Identifier: Apache-2.0
#include "src/train/select/filter_data.hpp"

#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/train/data/check_tokens.hpp"
#include "src/train/data/document_of.hpp"
#include "src/train/data/llmc_writer.hpp"
#include "src/train/data/loss_weights_file.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/select/chosen_samples.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kTokensAtOnce = int64_t{1} << 18;

/// A data set and where its chosen samples stand.
struct FilteredSet {
    TrainingData::TrainingSet set;
    int64_t first_sample = 0;
    int64_t begin = 0, end = 0;  ///< positions in the choice
};

/// Tokens [begin, end) of a set, which become one document.
struct Piece {
    size_t set = 0;
    int64_t document = -1;  ///< of the data's index; -1: a sample
    int64_t begin = 0, end = 0;
};

class Filter {
public:
    explicit Filter(const FilterOptions& options)
        : options_(options),
          data_(options.data),
          chosen_("--subset", options.subset, data_, options.seq_length) {
        int64_t sample = 0;
        for (TrainingData::TrainingSet& set : data_.training_sets(options.seq_length)) {
            FilteredSet one{.set = std::move(set), .first_sample = sample};
            sample += one.set.samples;
            one.begin = chosen_.position_of(one.first_sample);
            one.end = chosen_.position_of(sample);
            sets_.push_back(std::move(one));
        }
        weight_type_ = common_weight_type();
        check_documents();
        check_weights();
        check_files();
    }

    FilterTotals run() {
        FilterTotals totals{.samples = sets_.back().end};
        std::optional<OutputFile> ids;
        if (!options_.ids.empty()) {
            ids.emplace(options_.ids);
            totals.documents = 0;
            for_each_document([&](const Piece& piece) {
                ++totals.documents;
                if (sets_.size() > 1) ids->write(std::to_string(piece.set) + " ");
                ids->write(std::to_string(piece.document) + "\n");
            });
            ids->sync();
        }
        if (!options_.output.empty()) copy(totals);
        if (ids) ids->publish();
        return totals;
    }

private:
    void check_documents() const {
        if (!options_.documents && options_.ids.empty()) return;
        for (const FilteredSet& one : sets_) {
            if (one.set.tokens->info().documents >= 0) continue;
            throw UsageError(
                std::string(options_.documents ? "--documents" : "--ids " + options_.ids) + ": " +
                one.set.path +
                " does not say where documents begin; use data in Megatron's format");
        }
    }

    /// A shard of llm.c has no loss weights.
    void check_weights() const {
        if (!options_.llmc || !weight_type_) return;
        throw UsageError(
            "--format llmc: the data have loss weights, which only Megatron's format "
            "keeps beside the tokens; use --format megatron");
    }

    void check_files() const {
        std::vector<std::string> inputs = data_.files();
        inputs.push_back(options_.subset);
        OutputCheck check(std::move(inputs));
        const std::string& prefix = options_.output;
        if (!prefix.empty() && options_.llmc) check.add("--output", prefix + ".bin", llmc_output());
        if (!prefix.empty() && !options_.llmc) {
            check.add("--output", prefix + ".bin", tokens_output(prefix));
            check.add("--output", prefix + ".idx", tokens_output(prefix));
            if (weight_type_) {
                check.add("--output", loss_weights::path_beside(prefix), tokens_output(prefix));
            }
        }
        if (!options_.ids.empty()) check.add("--ids", options_.ids, document_ids_output());
    }

    void poll(int64_t position) const {
        if (options_.poll) options_.poll();
        if (options_.progress) options_.progress(position, sets_.back().end);
    }

    /// Calls `visit` for every chosen sample, in order.
    template <typename Visit>
    void for_each_sample(const Visit& visit) const {
        for (size_t s = 0; s < sets_.size(); ++s) {
            const FilteredSet& one = sets_[s];
            for (int64_t position = one.begin; position < one.end; ++position) {
                poll(position);
                const int64_t begin =
                    (chosen_.sample(position) - one.first_sample) * options_.seq_length;
                visit(Piece{.set = s, .begin = begin, .end = begin + options_.seq_length});
            }
        }
    }

    /// Calls `visit` for every document that has a token of a chosen sample's inputs, in order.
    template <typename Visit>
    void for_each_document(const Visit& visit) const {
        size_t set = 0;
        int64_t next = 0;  // documents before it were looked at
        for_each_sample([&](const Piece& sample) {
            if (sample.set != set) next = 0;
            set = sample.set;
            const TokenSource& tokens = *sets_[set].set.tokens;
            next = std::max(next, document_of(tokens, sample.begin));
            for (; next < tokens.info().documents; ++next) {
                const Piece document{.set = set,
                                     .document = next,
                                     .begin = tokens.document_start(next),
                                     .end = tokens.document_start(next + 1)};
                if (document.begin >= sample.end) break;
                if (document.end > std::max(document.begin, sample.begin)) visit(document);
            }
        });
    }

    /// Calls `visit` for every piece of the copy.
    template <typename Visit>
    void for_each_piece(const Visit& visit) const {
        if (options_.documents) {
            for_each_document(visit);
            return;
        }
        std::optional<Piece> last;
        for_each_sample([&](const Piece& sample) {
            if (last) visit(*last);
            last = sample;
        });
        if (!last) return;
        ++last->end;  // the last label
        visit(*last);
    }

    using CopyTokens = std::function<void(std::span<const int32_t>, std::span<const float>)>;

    /// Calls `to` for tokens and, if any set has some, their loss weights.
    void copy_tokens(const Piece& piece, const CopyTokens& to) {
        const TokenSource& tokens = *sets_[piece.set].set.tokens;
        for (int64_t at = piece.begin; at < piece.end; at += kTokensAtOnce) {
            buffer_.resize(static_cast<size_t>(std::min(kTokensAtOnce, piece.end - at)));
            tokens.read(at, buffer_);
            if (weight_type_) {
                weights_.resize(buffer_.size());
                tokens.read_loss_weights(at, weights_);
            }
            to(buffer_, weights_);
        }
    }

    /// Opens every file of loss weights.
    [[nodiscard]] std::optional<LossWeightType> common_weight_type() const {
        std::optional<LossWeightType> type;
        for (const FilteredSet& one : sets_) {
            const std::string& path = one.set.tokens->info().loss_weights;
            if (path.empty()) continue;
            const LossWeightType own = LossWeightsFile(path).type();
            type = std::max(own, type.value_or(own));
        }
        return type;
    }

    /// Upper bound of the ids of the data.
    [[nodiscard]] int64_t vocabulary() const {
        int64_t vocabulary = 1;
        for (const FilteredSet& one : sets_) {
            const TokenRange range = token_range(*one.set.tokens);
            if (range.min < 0) {
                throw InputFileError(one.set.path + ": has token " + std::to_string(range.min) +
                                     "; ids must be at least 0; prepare the data again");
            }
            vocabulary = std::max(vocabulary, int64_t{range.max} + 1);
        }
        return vocabulary;
    }

    void copy(FilterTotals& totals) {
        if (options_.llmc) {
            int64_t tokens = 0;
            for_each_piece([&](const Piece& piece) { tokens += piece.end - piece.begin; });
            LlmcWriter writer(options_.output + ".bin", vocabulary(), tokens);
            for_each_piece([&](const Piece& piece) {
                copy_tokens(piece, [&](std::span<const int32_t> part, std::span<const float>) {
                    writer.append(part);
                });
            });
            writer.finish();
            totals.tokens = tokens;
            totals.bytes = writer.bytes();
            totals.type = writer.type();
            return;
        }
        MegatronWriter writer(options_.output, vocabulary(), weight_type_);
        for_each_piece([&](const Piece& piece) {
            copy_tokens(piece, [&](std::span<const int32_t> part, std::span<const float> of_part) {
                weight_type_ ? writer.append(part, of_part) : writer.append(part);
            });
            writer.end_document();
        });
        const MegatronTotals written = writer.finish();
        totals.tokens = written.tokens;
        totals.bytes = written.bytes;
        totals.type = written.type;
    }

    const FilterOptions& options_;
    TrainingData data_;
    ChosenSamples chosen_;
    std::vector<FilteredSet> sets_;
    /// Holds the loss weights of all sets; none: they are 1.
    std::optional<LossWeightType> weight_type_;
    std::vector<int32_t> buffer_;
    std::vector<float> weights_;  ///< of the tokens in buffer_; empty without weight_type_
};

}  // namespace

FilterTotals filter_data(const FilterOptions& options) {
    return Filter(options).run();
}

}  // namespace vocabpipe
