// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/published_rows.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <fstream>
#include <sstream>

namespace vocabpipe {

namespace {

int64_t& cost(TableCosts::OpCosts& costs, Op op) {
    return costs[static_cast<size_t>(op)];
}

std::vector<std::string> cells(const std::string& line) {
    std::vector<std::string> result;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) result.push_back(cell);
    return result;
}

}  // namespace

VocabMode PublishedRow::mode() const {
    if (method == "vocab-1") return VocabMode::two_barriers;
    if (method == "vocab-2") return VocabMode::one_barrier;
    if (method == "interlaced") return VocabMode::interlaced;
    return VocabMode::none;  // redis moves layers; F and B contain that already
}

Schedule PublishedRow::schedule() const {
    return make_schedule("1f1b", {.ranks = ranks,
                                  .microbatches = microbatches,
                                  .vocab_mode = mode(),
                                  .vocab_size = vocab,
                                  .costs = pass_costs(costs)});
}

std::vector<PublishedRow> read_published_rows(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    if (!std::getline(in, line)) throw InputFileError(path + ": cannot be read");
    std::vector<PublishedRow> rows;
    while (std::getline(in, line)) {
        const std::vector<std::string> text = cells(line);
        constexpr size_t kFacts = 5;
        constexpr int kRanks = 8;
        if (text.size() != kFacts + 5 * kRanks) {
            throw InputFileError(path + ": row " + std::to_string(rows.size() + 1) + " has " +
                                 std::to_string(text.size()) + " cells, expected 45");
        }
        PublishedRow row{.method = text[0],
                         .vocab = std::stoll(text[1]),
                         .ranks = std::stoi(text[2]),
                         .microbatches = std::stoi(text[3]),
                         .iteration_us = std::stoll(text[4]),
                         .costs = TableCosts::uniform(kRanks, kRanks, 0, 0, 0)};
        for (size_t rank = 0; rank < kRanks; ++rank) {
            const auto at = [&](size_t column) {
                return std::stoll(text[kFacts + column * kRanks + rank]);
            };
            TableCosts::OpCosts& stage = row.costs.stage_ns[rank];
            cost(stage, Op::F) = at(0);
            cost(stage, Op::B) = at(1);
            cost(stage, Op::W) = at(1) / 2;
            cost(stage, Op::I) = at(1) - at(1) / 2;
            TableCosts::OpCosts& shard = row.costs.rank_ns[rank];
            cost(shard, Op::S) = at(2) / 2;
            cost(shard, Op::T) = at(2) - at(2) / 2;
            cost(shard, Op::E) = at(3);
            cost(shard, Op::G) = at(4);
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

TableCosts in_chunks(const TableCosts& costs, int chunks) {
    TableCosts result = costs;
    const size_t ranks = costs.rank_ns.size();
    for (int chunk = 1; chunk < chunks; ++chunk) {
        for (size_t i = 0; i < ranks; ++i) {
            result.stage_ns.push_back(costs.stage_ns[chunk % 2 == 1 ? ranks - 1 - i : i]);
        }
    }
    for (TableCosts::OpCosts& stage : result.stage_ns) {
        for (const Op op : {Op::F, Op::I, Op::W}) cost(stage, op) /= chunks;
        cost(stage, Op::B) = cost(stage, Op::I) + cost(stage, Op::W);
    }
    return result;
}

PassCosts pass_costs(const TableCosts& costs) {
    PassCosts result;
    result.stage = costs.stage_ns;
    result.rank = costs.rank_ns;
    result.hop = PublishedCosts::kHop;
    return result;
}

StepSizes published_sizes(const PublishedRow& row, int stages) {
    constexpr int64_t kTokens = 2048;
    constexpr int64_t kHidden = 3072;
    constexpr int64_t kLayers = 32;
    StepSizes sizes{.tokens = kTokens, .hidden = kHidden, .dtype = DType::bf16};
    // 34 N h bytes per layer, as published runs keep (docs/planning-accuracy.md, "Memory"). From
    // I to W also the output gradients of the layer's linear parts: 7 h + f elements
    // (docs/memory.md).
    const int64_t layer = kTokens * kHidden * kLayers / stages;
    sizes.stages.assign(static_cast<size_t>(stages),
                        {.saved = 34 * layer, .for_weight = 22 * layer});
    sizes.shards.assign(static_cast<size_t>(row.ranks),
                        {.exp_logits = 2 * kTokens * (row.vocab / row.ranks)});
    return sizes;
}

}  // namespace vocabpipe
