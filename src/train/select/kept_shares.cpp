// SPDX-License-Identifier: Apache-2.0
#include "src/train/select/kept_shares.hpp"

#include <algorithm>

#include "src/train/data/document_starts.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kAtOnce = 8192;  // numbers of samples

/// A source and the number of its first sample.
struct Source {
    KeptShare share;
    int64_t first = 0;
};

std::vector<Source> documents_of(const TokenSource& tokens, int64_t samples, int64_t seq_length) {
    std::vector<Source> documents;
    const std::vector<int64_t> starts = document_starts(tokens, -1);
    // Documents without the first token of a sample are left out.
    int64_t first = 0;
    for (int64_t d = 0; d < tokens.info().documents && first < samples; ++d) {
        const int64_t end =
            std::min((starts[static_cast<size_t>(d) + 1] + seq_length - 1) / seq_length, samples);
        if (end <= first) continue;
        documents.push_back(
            {.share = {.source = "document " + std::to_string(d), .samples = end - first},
             .first = first});
        first = end;
    }
    return documents;
}

}  // namespace

std::vector<KeptShare> kept_shares(const TrainingData& data, const SubsetReader& subset) {
    const int64_t seq_length = subset.info().corpus.seq_length;
    const auto sets = data.training_sets(seq_length);
    std::vector<Source> sources;
    if (sets.size() == 1 && sets.front().tokens->info().documents > 0) {
        sources = documents_of(*sets.front().tokens, sets.front().samples, seq_length);
    } else {
        int64_t first = 0;
        for (const TrainingData::TrainingSet& set : sets) {
            sources.push_back(
                {.share = {.source = set.path, .samples = set.samples}, .first = first});
            first += set.samples;
        }
    }
    std::vector<int64_t> chosen;
    auto at = sources.begin();
    for (int64_t position = 0; position < subset.count(); position += kAtOnce) {
        chosen.resize(static_cast<size_t>(std::min(kAtOnce, subset.count() - position)));
        subset.read(position, chosen);
        for (const int64_t sample : chosen) {
            while (std::next(at) != sources.end() && std::next(at)->first <= sample) ++at;
            ++at->share.chosen;
        }
    }
    std::vector<KeptShare> shares;
    for (Source& source : sources) shares.push_back(std::move(source.share));
    return shares;
}

}  // namespace vocabpipe
