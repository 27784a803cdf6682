// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/training_data.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "src/support/length_buckets.hpp"
#include "src/train/data/blended_samples.hpp"
#include "src/train/data/check_tokens.hpp"
#include "src/train/data/document_starts.hpp"
#include "src/train/data/find_end_of_document.hpp"
#include "src/train/data/loss_weights_file.hpp"
#include "src/train/data/packed_samples.hpp"
#include "src/train/data/paired_samples.hpp"
#include "src/train/data/sample_columns.hpp"
#include "src/train/data/samples_in_sequence.hpp"
#include "src/train/data/subset_samples.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {

namespace {

struct PathOption {
    const char* flag;
    const std::vector<std::string>* words;
};

/// The path flags of the splits.
std::array<PathOption, kDataSplits.size()> own_paths(const DataOptions& o) {
    return {{{"--train-data-path", &o.train_path},
             {"--valid-data-path", &o.valid_path},
             {"--test-data-path", &o.test_path}}};
}

void check_flags(const DataOptions& o) {
    const char* own = nullptr;
    for (const auto& [flag, words] : own_paths(o)) {
        if (!words->empty()) own = flag;
    }
    if (own == nullptr && (o.path.empty() || o.path == std::vector<std::string>{""})) {
        throw UsageError("--data-path: is required");
    }
    if (own != nullptr && !o.path.empty()) {
        throw UsageError("--data-path: cannot be used with " + std::string(own) +
                         "; use --train-data-path instead");
    }
    if (own != nullptr && !o.split.empty()) {
        throw UsageError("--split " + o.split + ": applies to --data-path, but " + own +
                         " is set; remove one of them");
    }
    if (o.has_whole_documents() && !o.subset.empty()) {
        throw UsageError("--packing-strategy " + o.packing_strategy +
                         ": cannot be used with --data-subset, which chooses among samples that "
                         "are cut from the stream; use wrapped");
    }
    if (o.packing_strategy == "bfd" && !o.columns.empty()) {
        throw UsageError(
            "--packing-strategy bfd: cannot be used with --columns, which has numbers of one "
            "document or of a sample that is cut from the stream; use padded or wrapped");
    }
    if (!o.length_buckets.empty() && !o.has_whole_documents()) {
        throw UsageError("--length-buckets " + o.length_buckets +
                         ": lengths are those of documents, but samples are cut from the stream; "
                         "set --packing-strategy bfd or padded");
    }
    if (o.reset_position_ids && !o.reset_attention_mask && !o.has_whole_documents()) {
        throw UsageError(
            "--reset-position-ids: needs --reset-attention-mask, because a token that sees other "
            "documents has a position among them; set both");
    }
    if (o.eod_token_id < -1 || o.eod_token_id > INT32_MAX) {
        throw UsageError("--eod-token-id " + std::to_string(o.eod_token_id) +
                         ": must be a token id of at least 0");
    }
}

/// Checksum of 64 places of 64 tokens each.
uint64_t sampled_checksum(const TokenSource& source) {
    constexpr int64_t kPlaces = 64;
    std::vector<int32_t> tokens(static_cast<size_t>(std::min(source.size(), int64_t{64})));
    const int64_t last = source.size() - static_cast<int64_t>(tokens.size());
    uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
    for (int64_t i = 0; i < kPlaces; ++i) {
        source.read(last / (kPlaces - 1) * i, tokens);
        for (const int32_t token : tokens) {
            sum = (sum ^ static_cast<uint32_t>(token)) * 0x100000001b3;
        }
    }
    return sum;
}

}  // namespace

TrainingData::TrainingData(const DataOptions& options)
    : options_(options),
      proportions_(options.split.empty() ? SplitProportions() : SplitProportions(options.split)) {
    check_flags(options);
    const auto own = own_paths(options);
    for (const DataSplit split : kDataSplits) {
        const auto i = static_cast<size_t>(split);
        PathOption given = own[i];
        if (!options.path.empty() && proportions_[split] > 0)
            given = {"--data-path", &options.path};
        if (!given.words->empty()) {
            parts_[i] = {given.flag, parse_data_paths(given.flag, *given.words)};
        }
    }
    const DataFormat format = parse_data_format(options.format);
    for (const Part& part : parts_) {
        for (const WeightedPath& path : part.paths) {
            if (!sources_.contains(path.path)) {
                sources_[path.path] = open_tokens(path.path, format);
            }
        }
    }
}

bool TrainingData::has(DataSplit split) const {
    return !part(split).paths.empty();
}

void TrainingData::require(DataSplit split) const {
    if (has(split)) return;
    const std::string name(to_string(split));
    throw UsageError("there is no " + name + " data; set --" + name + "-data-path" +
                     (split == DataSplit::train ? "" : ", or --split with a part for it"));
}

std::shared_ptr<const TokenSource> TrainingData::tokens_of(const std::string& path,
                                                           DataSplit split) const {
    std::shared_ptr<const TokenSource> tokens = source(path);
    if (options_.split.empty()) return tokens;
    const TokenSourceInfo whole = tokens->info();
    tokens = cut_split(std::move(tokens), proportions_, split);
    if (tokens->size() == 0) throw InputFileError(path + ": " + empty_part(whole, split));
    return tokens;
}

std::unique_ptr<const SampleSource> TrainingData::open_set(const std::string& path, DataSplit split,
                                                           const TokenDatasetOptions& options,
                                                           const std::vector<int64_t>& lengths,
                                                           bool whole) const {
    std::shared_ptr<const TokenSource> tokens = tokens_of(path, split);
    if (options_.has_whole_documents()) {
        return std::make_unique<PackedSamples>(
            std::move(tokens), options,
            PackingOptions{.lengths = lengths,
                           .one_each = options_.packing_strategy == "padded",
                           .whole = whole});
    }
    return std::make_unique<TokenDataset>(std::move(tokens), options);
}

std::unique_ptr<const SampleSource> TrainingData::samples(DataSplit split,
                                                          const TokenDatasetOptions& options,
                                                          const std::vector<int64_t>& lengths,
                                                          const OpenColumns& columns) const {
    require(split);
    std::vector<BlendedSamples::Part> blend;
    TokenDatasetOptions own = options;
    own.masks = masks();
    int64_t all = 0;
    for (const WeightedPath& path : part(split).paths) {
        if (part(split).paths.size() > 1) own.seed = derived_seed(options.seed, blend.size());
        blend.push_back({path.weight, open_set(path.path, split, own, lengths)});
        all += blend.back().samples->samples_per_epoch();
    }
    if (columns) {
        const std::shared_ptr<const SampleColumns> opened = columns(all);
        int64_t first = 0;  // sample of the set
        for (BlendedSamples::Part& set : blend) {
            const int64_t count = set.samples->samples_per_epoch();
            set.samples =
                std::make_unique<SamplesWithColumns>(std::move(set.samples), opened, first);
            first += count;
        }
    }
    if (blend.size() == 1) return std::move(blend.front().samples);
    return std::make_unique<BlendedSamples>(std::move(blend));
}

std::unique_ptr<const SampleSource> TrainingData::pairs(const TokenDatasetOptions& options,
                                                        const std::vector<int64_t>& lengths,
                                                        const OpenColumns& columns) const {
    require(DataSplit::train);
    const Part& train = part(DataSplit::train);
    if (train.paths.size() > 1) {
        throw UsageError(train.flag +
                         ": is a blend, but samples 2 i and 2 i + 1 of one data set are a pair; "
                         "use one data set");
    }
    if (!options_.split.empty()) {
        throw UsageError("--split " + options_.split +
                         ": may cut a pair of samples; use --train-data-path and "
                         "--valid-data-path");
    }
    std::unique_ptr<const SampleSource> set = open_set(train.paths.front().path, DataSplit::train,
                                                       in_stream_order(options), lengths, true);
    const int64_t count = set->samples_per_epoch();
    if (columns) set = std::make_unique<SamplesWithColumns>(std::move(set), columns(count), 0);
    return std::make_unique<PairedSamples>(std::move(set), options.seed, options.shuffle,
                                           lengths.size() > 1);
}

std::vector<int64_t> TrainingData::length_buckets(
    int64_t seq_length, const std::function<double(int64_t)>& cost) const {
    if (options_.length_buckets.empty()) return {seq_length};
    if (options_.length_buckets != "auto") {
        return parse_length_buckets(options_.length_buckets, seq_length);
    }
    return choose_length_buckets(document_lengths(), {.seq_length = seq_length}, cost);
}

std::vector<LengthCount> TrainingData::document_lengths() const {
    require(DataSplit::train);
    const int32_t end_of_document = masks().end_of_document;
    std::map<int64_t, int64_t> counts;
    for (const WeightedPath& path : part(DataSplit::train).paths) {
        const std::shared_ptr<const TokenSource> tokens = tokens_of(path.path, DataSplit::train);
        const std::vector<int64_t> starts = document_starts(*tokens, end_of_document);
        for (size_t d = 0; d + 1 < starts.size(); ++d) {
            const int64_t rows = starts[d + 1] - starts[d] - 1;
            if (rows >= 1) ++counts[rows];
        }
    }
    std::vector<LengthCount> lengths;
    for (const auto& [length, count] : counts) lengths.push_back({length, count});
    return lengths;
}

TokenDatasetOptions TrainingData::in_stream_order(TokenDatasetOptions options) const {
    options.shuffle = false;
    options.masks = masks();
    return options;
}

std::unique_ptr<const SampleSource> TrainingData::chosen_samples(
    const TokenDatasetOptions& options, const std::shared_ptr<const SampleChoice>& chosen,
    const std::shared_ptr<const SampleColumns>& columns) const {
    require(DataSplit::train);
    const std::vector<WeightedPath>& paths = part(DataSplit::train).paths;
    std::vector<BlendedSamples::Part> blend;
    const TokenDatasetOptions in_order = in_stream_order(options);
    int64_t first = 0;  // sample of the set
    for (const WeightedPath& path : paths) {
        std::unique_ptr<const SampleSource> all =
            std::make_unique<TokenDataset>(tokens_of(path.path, DataSplit::train), in_order);
        const int64_t end = first + all->samples_per_epoch();
        const int64_t begin_position = chosen->position_of(first);
        const int64_t count = chosen->position_of(end) - begin_position;
        if (count == 0) {
            throw UsageError("--data-subset: of " + path.path + ", samples " +
                             std::to_string(first) + " to " + std::to_string(end - 1) +
                             ", none is chosen; leave it out of the data before scoring, or choose "
                             "more samples");
        }
        if (columns) all = std::make_unique<SamplesWithColumns>(std::move(all), columns, first);
        blend.push_back({path.weight,
                         std::make_unique<SubsetSamples>(
                             std::move(all), chosen,
                             SubsetSamples::Options{
                                 .first_position = begin_position,
                                 .count = count,
                                 .first_sample = first,
                                 .seed = paths.size() > 1 ? derived_seed(options.seed, blend.size())
                                                          : options.seed,
                                 .shuffle = options.shuffle})});
        first = end;
    }
    if (blend.size() == 1) return std::move(blend.front().samples);
    return std::make_unique<BlendedSamples>(std::move(blend));
}

std::unique_ptr<const SampleSource> TrainingData::samples_in_order(
    const TokenDatasetOptions& options, const std::vector<int64_t>& lengths) const {
    require(DataSplit::train);
    const TokenDatasetOptions in_order = in_stream_order(options);
    std::vector<std::unique_ptr<const SampleSource>> sets;
    for (const WeightedPath& path : part(DataSplit::train).paths) {
        sets.push_back(open_set(path.path, DataSplit::train, in_order, lengths));
    }
    return std::make_unique<SamplesInSequence>(std::move(sets));
}

std::vector<TrainingData::TrainingSet> TrainingData::training_sets(int64_t seq_length) const {
    require(DataSplit::train);
    std::vector<TrainingSet> sets;
    for (const WeightedPath& path : part(DataSplit::train).paths) {
        TrainingSet set{
            .path = path.path, .tokens = tokens_of(path.path, DataSplit::train), .identity = {}};
        set.samples = TokenDataset(set.tokens, {.seq_length = seq_length}).samples_per_epoch();
        std::ostringstream line;
        line << source(path.path)->size() << " tokens, checksum " << std::hex
             << sampled_checksum(*source(path.path)) << std::dec << ", the first "
             << set.tokens->size() << " to train on";
        set.identity = line.str();
        sets.push_back(std::move(set));
    }
    return sets;
}

void TrainingData::check(int64_t vocab_size) const {
    int64_t tokens = 0;
    for (const auto& [path, source] : sources_) tokens += source->size();
    const auto sets = static_cast<int64_t>(sources_.size());
    const int64_t most = tokens <= kCheckedTokens ? kAllTokens : kCheckedTokens / sets;
    for (const auto& [path, source] : sources_) {
        check_tokens(*source, vocab_size, most);
        const std::string& weights = source->info().loss_weights;
        if (!weights.empty()) (void)LossWeightsFile(weights).check(most);
    }
    if (options_.eod_token_id >= vocab_size) {
        throw UsageError("--eod-token-id " + std::to_string(options_.eod_token_id) +
                         ": must be below --vocab-size " + std::to_string(vocab_size));
    }
}

DocumentMasks TrainingData::masks() const {
    DocumentMasks masks{.end_of_document = static_cast<int32_t>(options_.eod_token_id),
                        .ignore_next = options_.eod_mask_loss,
                        .separate = options_.reset_attention_mask,
                        .reset_positions = options_.reset_position_ids};
    if (masks.end_of_document >= 0) return masks;
    if (options_.has_whole_documents()) {
        masks.end_of_document = end_of_document("--packing-strategy " + options_.packing_strategy);
    } else if (masks.ignore_next || masks.separate) {
        masks.end_of_document =
            end_of_document(masks.ignore_next ? "--eod-mask-loss" : "--reset-attention-mask");
    }
    return masks;
}

int32_t TrainingData::end_of_document(const std::string& flag) const {
    int32_t end_of_document = -1;
    for (const auto& [path, source] : sources_) {
        // These are the documents that the format lists.
        if (options_.has_whole_documents() && source->info().documents >= 0) continue;
        const std::optional<int32_t> end = find_end_of_document(*source);
        if (!end) {
            throw UsageError(flag + ": " + path +
                             " does not say which token ends a document; set --eod-token-id");
        }
        if (end_of_document >= 0 && end_of_document != *end) {
            throw UsageError(flag + ": documents end with token " + std::to_string(*end) + " in " +
                             path + ", but with " + std::to_string(end_of_document) +
                             " in another file; set --eod-token-id");
        }
        end_of_document = *end;
    }
    return end_of_document;
}

std::vector<std::string> TrainingData::fingerprint() const {
    std::vector<std::string> lines;
    for (const DataSplit split : kDataSplits) {
        for (const WeightedPath& path : part(split).paths) {
            std::ostringstream line;
            line.precision(17);
            line << to_string(split) << " data: share " << path.weight << ", "
                 << source(path.path)->size() << " tokens, checksum " << std::hex
                 << sampled_checksum(*source(path.path));
            const std::string& weights = source(path.path)->info().loss_weights;
            if (!weights.empty()) {
                const LossWeightsFile file(weights);
                line << ", loss weights " << to_string(file.type()) << " " << file.checksum();
            }
            lines.push_back(line.str());
        }
    }
    return lines;
}

std::vector<std::string> TrainingData::files() const {
    std::vector<std::string> files;
    for (const auto& [path, source] : sources_) {
        const TokenSourceInfo& info = source->info();
        files.insert(files.end(), info.files.begin(), info.files.end());
        if (!info.index.empty()) files.push_back(info.index);
        if (!info.loss_weights.empty()) files.push_back(info.loss_weights);
    }
    return files;
}

std::vector<std::string> TrainingData::flags() const {
    std::vector<std::string> flags;
    const std::string* last = nullptr;
    for (const Part& part : parts_) {
        if (part.paths.empty() || (last != nullptr && *last == part.flag)) continue;
        std::ostringstream line;
        line.precision(17);
        line << part.flag;
        for (const WeightedPath& path : part.paths) {
            if (part.paths.size() > 1) line << ' ' << path.weight;
            line << ' ' << std::filesystem::absolute(path.path).lexically_normal().string();
        }
        flags.push_back(line.str());
        last = &part.flag;
    }
    return flags;
}

}  // namespace vocabpipe
