// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// The label of a token whose loss does not count.
inline constexpr int32_t kIgnoredLabel = -1;

/// One sample of s tokens, its length, and what is to be learnt from each of them.
struct Sample {
    /// A clear() sample.
    explicit Sample(int64_t seq_length)
        : tokens(static_cast<size_t>(seq_length)),
          labels(tokens.size(), kIgnoredLabel),
          loss_weights(tokens.size(), 1.0F),
          first_visible(tokens.size()) {}

    /// Makes room for `length` tokens; what they are is not said.
    void resize(int64_t length) {
        const auto size = static_cast<size_t>(length);
        tokens.resize(size);
        labels.resize(size);
        loss_weights.resize(size);
        first_visible.resize(size);
    }

    /// Appends tokens 0 without labels and with columns of 0, a document of their own, up to
    /// `length` tokens.
    void pad(int64_t length) {
        const auto end = static_cast<int32_t>(tokens.size());
        const auto size = static_cast<size_t>(length);
        const size_t count = tokens.empty() ? 0 : columns.size() / tokens.size();
        std::vector<float> padded(count * size);
        for (size_t c = 0; c < count; ++c) {
            std::copy_n(columns.data() + c * tokens.size(), tokens.size(),
                        padded.data() + c * size);
        }
        columns = std::move(padded);
        tokens.resize(size, 0);
        labels.resize(size, kIgnoredLabel);
        loss_weights.resize(size, 1.0F);
        first_visible.resize(size, end);
    }

    /// One document of tokens 0 without labels.
    void clear() {
        std::ranges::fill(tokens, 0);
        std::ranges::fill(labels, kIgnoredLabel);
        std::ranges::fill(loss_weights, 1.0F);
        std::ranges::fill(first_visible, 0);
        std::ranges::fill(columns, 0.0F);
    }

    std::vector<int32_t> tokens;  ///< (s)
    std::vector<int32_t> labels;  ///< (s): the token after each, or kIgnoredLabel
    /// (s), finite and not negative: how much the loss of each label counts. 0 ignores the label.
    std::vector<float> loss_weights;
    /// (s): for every token the first token of its document, as an index into the sample.
    std::vector<int32_t> first_visible;
    /// (SampleForm::columns, s): numbers for every token, which a TokenLoss reads, one column after
    /// the other; empty if there are none.
    std::vector<float> columns;
};

/// What a source's samples have besides tokens and a label for each: what no sample has costs
/// nothing.
struct SampleForm {
    /// Labels may be ignored or have weights other than 1: the sum of a step's weights depends on
    /// the data.
    bool weighs_labels = false;
    bool separates_documents = false;  ///< a token sees its own document only
    bool resets_positions = false;     ///< with separates_documents: they begin anew with each
    int64_t columns = 0;               ///< of Sample::columns

    /// What samples of either source have.
    friend SampleForm operator|(const SampleForm& a, const SampleForm& b) {
        return {.weighs_labels = a.weighs_labels || b.weighs_labels,
                .separates_documents = a.separates_documents || b.separates_documents,
                .resets_positions = a.resets_positions || b.resets_positions,
                .columns = std::max(a.columns, b.columns)};
    }
};

/// The training samples of a run by number, counted over all epochs without end. A number is the
/// same sample in every run and on every rank. Safe from several threads.
class SampleSource {
public:
    virtual ~SampleSource() = default;

    /// Tokens of a sample, or of the longest samples.
    [[nodiscard]] virtual int64_t seq_length() const = 0;

    /// Tokens of sample `index`, without reading it. Default: all samples are equally long.
    [[nodiscard]] virtual int64_t length(int64_t /*index*/) const { return seq_length(); }

    /// Number of different samples.
    [[nodiscard]] virtual int64_t samples_per_epoch() const = 0;

    /// Which of them sample `index` is, counted from 0 in the order of the data, in a blend data
    /// set after data set. Default: every epoch is in that order.
    [[nodiscard]] virtual int64_t stream_number(int64_t index) const {
        return index % samples_per_epoch();
    }

    /// What the samples have besides tokens and labels. Default: nothing.
    [[nodiscard]] virtual SampleForm form() const { return {}; }

    /// How documents were packed into the samples, a line for each data set: for people, and equal
    /// on two hosts only if the samples are. Empty: they were not.
    [[nodiscard]] virtual std::vector<std::string> packing() const { return {}; }

    /// Reads sample `index` >= 0 into `out`, a Sample of length(index) tokens.
    void sample(int64_t index, Sample& out) const {
        out.clear();
        out.columns.resize(static_cast<size_t>(form().columns) * out.tokens.size());
        fill(index, out);
    }

private:
    /// Writes what differs from a clear sample, whose columns, as many as form() says, are 0:
    /// tokens and labels, and what form() promises.
    virtual void fill(int64_t index, Sample& out) const = 0;
};

}  // namespace vocabpipe
