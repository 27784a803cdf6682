// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// One row of data/published_pass_times.csv: mean pass times per rank and the measured iteration of
/// one method on 8 A100 GPUs (artifact of arXiv 2411.05288, exp_one_host.csv; h = 3072, 32 layers,
/// sequence 2048, m = 128, 1F1B). Times in microseconds.
struct PublishedRow {
    std::string method;  ///< baseline, redis, vocab-1, vocab-2, interlaced
    int64_t vocab = 0;
    int ranks = 0;
    int microbatches = 0;
    int64_t iteration_us = 0;
    /// F and B of every rank's stage, with W as half of B; S and T as halves of the published unit;
    /// E and G. Whole vocabulary layers are included in F and B, so their passes cost 0.
    TableCosts costs;

    [[nodiscard]] VocabMode mode() const;
    /// The method's own order, made with the row's own costs.
    [[nodiscard]] Schedule schedule() const;
};

/// Throws InputFileError.
[[nodiscard]] std::vector<PublishedRow> read_published_rows(const std::string& path);

/// The pass-level model of docs/performance.md: a message between neighbours takes half the median
/// published round trip, collectives and local sums nothing.
class PublishedCosts final : public CostModel {
public:
    static constexpr int64_t kHop = 173;  ///< us
    explicit PublishedCosts(const TableCosts& passes) : passes_(passes) {}
    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override {
        return passes_.pass_ns(rank, pass);
    }
    [[nodiscard]] int64_t transfer_ns(Do what, const Group&, int64_t) const override {
        return what == Do::send ? kHop : 0;
    }
    [[nodiscard]] int64_t local_ns(Do, int64_t) const override { return 0; }

private:
    const TableCosts& passes_;
};

/// The row's costs with every stage cut into `chunks` equal ones; two are placed in a V.
[[nodiscard]] TableCosts in_chunks(const TableCosts& costs, int chunks);

/// The row's costs as a search needs them.
[[nodiscard]] PassCosts pass_costs(const TableCosts& costs);

/// Sizes of the published model's buffers, for `stages` stages on `ranks` ranks.
[[nodiscard]] StepSizes published_sizes(const PublishedRow& row, int stages);

}  // namespace vocabpipe
