// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "vocabpipe/sample_source.hpp"

namespace vocabpipe {

/// What a column's numbers are.
enum class ColumnKind : uint8_t {
    finite,   ///< any finite number
    logprob,  ///< a number, or -infinity; of lists of tokens
    id,       ///< a token's id; -1: none
};

/// Columns of one name: a number of every token, or several, which are columns one after the other
/// of Sample::columns.
struct NamedColumns {
    std::string name;
    ColumnKind kind = ColumnKind::finite;
    int64_t count = 0;  ///< of each token; 0: one, without a dimension of their own in files
    /// In Sample::columns.
    [[nodiscard]] int64_t columns() const { return count > 0 ? count : 1; }
};

/// Numbers of every token of the training samples, by the samples' numbers: in stream order, in a
/// blend data set after data set. Safe from several threads.
class SampleColumns {
public:
    virtual ~SampleColumns() = default;

    /// What a sample has by them.
    [[nodiscard]] virtual SampleForm form() const = 0;
    /// Writes Sample::columns of sample `number`, as many tokens as `out` has, and weighs its
    /// labels.
    virtual void add(int64_t number, Sample& out) const = 0;
};

/// Samples of a data set with their columns.
class SamplesWithColumns final : public SampleSource {
public:
    /// `first`: number of the set's first sample.
    SamplesWithColumns(std::unique_ptr<const SampleSource> samples,
                       std::shared_ptr<const SampleColumns> columns, int64_t first)
        : samples_(std::move(samples)), columns_(std::move(columns)), first_(first) {}

    [[nodiscard]] int64_t seq_length() const override { return samples_->seq_length(); }
    [[nodiscard]] int64_t length(int64_t index) const override { return samples_->length(index); }
    [[nodiscard]] int64_t samples_per_epoch() const override {
        return samples_->samples_per_epoch();
    }
    [[nodiscard]] int64_t stream_number(int64_t index) const override {
        return samples_->stream_number(index);
    }
    [[nodiscard]] std::vector<std::string> packing() const override { return samples_->packing(); }
    [[nodiscard]] SampleForm form() const override { return samples_->form() | columns_->form(); }

private:
    void fill(int64_t index, Sample& out) const override {
        samples_->sample(index, out);
        columns_->add(first_ + stream_number(index), out);
    }

    std::unique_ptr<const SampleSource> samples_;
    std::shared_ptr<const SampleColumns> columns_;
    int64_t first_;
};

}  // namespace vocabpipe
