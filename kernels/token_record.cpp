// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/token_record.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr std::array<std::string_view, kEveryTokenRecord.size()> kNames{
    "loss", "logprob", "entropy", "logsumexp", "margin", "top_logprobs", "label_rank"};

}  // namespace

std::string_view to_string(TokenRecord record) {
    return kNames[static_cast<size_t>(record)];
}

TokenRecord token_record_from(std::string_view name) {
    const auto* const found = std::ranges::find(kNames, name);
    if (found != kNames.end()) return static_cast<TokenRecord>(found - kNames.begin());
    std::string all;
    for (const std::string_view one : kNames) {
        all += (all.empty() ? "" : one == kNames.back() ? " or " : ", ") + std::string(one);
    }
    throw UsageError("record " + std::string(name) + ": use " + all);
}

std::vector<TokenRecord> TokenRecords::list() const {
    std::vector<TokenRecord> records;
    for (const TokenRecord record : kEveryTokenRecord) {
        if (has(record)) records.push_back(record);
    }
    return records;
}

void TokenRecordOptions::check(int64_t vocab_size) const {
    if (!(temperature > 0) || std::isinf(temperature)) {
        throw UsageError("temperature " + std::to_string(temperature) +
                         ": must be a number above 0");
    }
    const int64_t most = std::min(TokenRecords::kMostBest, vocab_size);
    if (columns.has(TokenRecord::top_logprobs) &&
        (columns.best_count() < 1 || columns.best_count() > most)) {
        throw UsageError("record top_logprobs: is a list of the " +
                         std::to_string(columns.best_count()) + " likeliest tokens; set 1 to " +
                         std::to_string(most));
    }
    if (allowed_tokens.empty()) return;
    if (static_cast<int64_t>(allowed_tokens.size()) != vocab_size) {
        throw UsageError("allowed_tokens are set for " + std::to_string(allowed_tokens.size()) +
                         " tokens, but the vocabulary has " + std::to_string(vocab_size) +
                         "; set one for each, or none");
    }
    if (std::ranges::find(allowed_tokens, true) == allowed_tokens.end()) {
        throw UsageError("allowed_tokens forbid every token; allow at least one");
    }
}

}  // namespace vocabpipe
