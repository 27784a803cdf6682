// SPDX-License-Identifier: Apache-2.0
#include "src/tool/data/sample_texts.hpp"

#include "src/support/json_text.hpp"
#include "src/train/data/document_of.hpp"
#include "src/train/data/find_end_of_document.hpp"
#include "src/train/data/tokenizer_beside.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "src/train/tokenizer/open_tokenizer.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

namespace vocabpipe::tool {

namespace {

constexpr int64_t kTokensShown = 160;  // about a hundred words

using TrainingSet = TrainingData::TrainingSet;

/// The tokenizer for a data set, or null.
std::unique_ptr<Tokenizer> tokenizer_of(const TrainingSet& set, const std::string& model) {
    if (!model.empty()) return open_tokenizer(model);
    if (auto beside = open_tokenizer_beside(prefix_of_data(set.path))) return beside;
    if (find_end_of_document(*set.tokens) == ByteTokenizer::kEndOfDocument) {
        return std::make_unique<ByteTokenizer>();
    }
    return nullptr;
}

/// A sample may begin or end within a character, which is invalid UTF-8: replaces such bytes.
std::string whole_characters(const std::string& text) {
    return nlohmann::json::parse(json_text(nlohmann::json(text))).get<std::string>();
}

std::string source_of(const TrainingSet& set, int64_t token) {
    if (set.tokens->info().documents <= 0) return set.path;
    return "document " + std::to_string(document_of(*set.tokens, token));
}

/// The samples of all data sets, by number.
class Texts {
public:
    Texts(const TrainingData& data, int64_t seq_length, const std::string& model)
        : sets_(data.training_sets(seq_length)), seq_length_(seq_length), model_(model) {
        for (const TrainingSet& set : sets_) tokenizers_.push_back(tokenizer_of(set, model));
    }

    [[nodiscard]] std::string tokenizer() const {
        for (const auto& one : tokenizers_) {
            if (one) return one->name();
        }
        return {};
    }

    [[nodiscard]] SampleText of(int64_t sample) const {
        size_t which = 0;
        int64_t of_set = sample;
        for (; of_set >= sets_[which].samples; ++which) of_set -= sets_[which].samples;
        const TrainingSet& set = sets_[which];
        const int64_t first = of_set * seq_length_;
        SampleText result;
        result.sample = sample;
        result.source = source_of(set, first);
        if (sets_.size() > 1 && result.source != set.path) {
            result.source = set.path + ", " + result.source;
        }
        if (!tokenizers_[which]) return result;
        std::vector<int32_t> tokens(static_cast<size_t>(std::min(kTokensShown, seq_length_)));
        set.tokens->read(first, tokens);
        const auto most = std::ranges::max(tokens);
        if (most >= tokenizers_[which]->vocab_size()) {
            if (model_.empty()) return result;
            throw UsageError("--tokenizer-model " + model_ + ": has " +
                             std::to_string(tokenizers_[which]->vocab_size()) +
                             " ids, but the data has token " + std::to_string(most) +
                             "; use the one that the data was prepared with");
        }
        result.text = whole_characters(text_of(*tokenizers_[which], tokens));
        if (kTokensShown < seq_length_) result.text += " ...";
        return result;
    }

private:
    /// The text of the tokens, with documents on separate lines.
    static std::string text_of(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
        std::string text;
        auto at = tokens.begin();
        while (at != tokens.end()) {
            const auto end = std::find(at, tokens.end(), tokenizer.end_of_document());
            text += tokenizer.decode({at, end});
            at = end == tokens.end() ? end : std::next(end);
            if (end != tokens.end()) text += "\n\u2014\n";
        }
        return text;
    }

    std::vector<TrainingSet> sets_;
    std::vector<std::unique_ptr<Tokenizer>> tokenizers_;
    int64_t seq_length_;
    std::string model_;
};

/// The sample that is left out and has `position` left-out samples before it.
int64_t left_out_at(const SubsetReader& subset, int64_t position) {
    int64_t low = 0;
    int64_t high = subset.info().corpus.samples - 1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t left_out = middle + 1 - subset.position_of(middle + 1);
        if (left_out > position) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

}  // namespace

SampleTexts sample_texts(const TrainingData& data, const SubsetReader& subset,
                         const std::string& model, int64_t count) {
    const Texts texts(data, subset.info().corpus.seq_length, model);
    SampleTexts result;
    result.tokenizer = texts.tokenizer();
    if (result.tokenizer.empty()) return result;
    const int64_t left_out = subset.info().corpus.samples - subset.count();
    // Takes the middles of equal parts.
    const auto place = [](int64_t i, int64_t of, int64_t all) {
        return (2 * i + 1) * all / (2 * of);
    };
    const int64_t chosen = std::min(count, subset.count());
    for (int64_t i = 0; i < chosen; ++i) {
        std::vector<int64_t> sample(1);
        subset.read(place(i, chosen, subset.count()), sample);
        result.chosen.push_back(texts.of(sample.front()));
    }
    const int64_t shown = std::min(count, left_out);
    for (int64_t i = 0; i < shown; ++i) {
        result.left_out.push_back(texts.of(left_out_at(subset, place(i, shown, left_out))));
    }
    return result;
}

std::vector<SampleText> texts_of_samples(const TrainingData& data, int64_t seq_length,
                                         const std::string& model,
                                         std::span<const int64_t> samples) {
    const Texts texts(data, seq_length, model);
    std::vector<SampleText> result;
    for (const int64_t sample : samples) result.push_back(texts.of(sample));
    return result;
}

}  // namespace vocabpipe::tool
