// SPDX-License-Identifier: Apache-2.0
// vocabpipe data inspect: checks token files and shows their contents.
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/support/joined.hpp"
#include "src/support/length_distribution.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/data/learnt_text.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/quantity.hpp"
#include "src/tool/support/terminal.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/data/check_tokens.hpp"
#include "src/train/data/data_paths.hpp"
#include "src/train/data/data_split.hpp"
#include "src/train/data/find_end_of_document.hpp"
#include "src/train/data/loss_weights_file.hpp"
#include "src/train/data/training_data.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "src/train/tokenizer/open_tokenizer.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe::tool {

namespace {

constexpr int64_t kFirstTokens = 16;   // printed as numbers
constexpr int64_t kTextTokens = 1024;  // decoded, up to the end of the first document
constexpr size_t kTextBytes = 300;     // printed
constexpr int64_t kPageTexts = 16;     // of --html, spread over the documents

struct InspectArguments {
    std::vector<std::string> path;  // a name, or weights and names of a blend
    std::string split;
    int64_t vocab_size = 0;  // 0: not given
    std::string tokenizer_model;
    std::string format = "auto";
    int64_t seq_length = 0;           // 0: not given
    std::string length_buckets;       // empty: all have seq_length
    std::string length_distribution;  // empty: not written
    std::string packing_strategy = "wrapped";
    int64_t eod_token_id = -1;
    std::optional<int64_t> document;
    std::string color = "auto";
    std::string html;
    bool all_tokens = false;
};

constexpr size_t kKeys = 15;  // width of the keys

void print(const char* key, const std::string& value) {
    std::printf("%-*s%s\n", static_cast<int>(kKeys), key, wrap_text(value, kKeys, kKeys).c_str());
}

void print(const char* key, int64_t value) {
    print(key, std::to_string(value));
}

/// The given tokenizer, else bytes if the ids look like bytes, else the one beside the data if it
/// has enough ids, else none.
std::unique_ptr<Tokenizer> find_tokenizer(const InspectArguments& options,
                                          const TokenSource& source, const TokenRange& range,
                                          int64_t most) {
    if (!options.tokenizer_model.empty()) {
        auto given = open_tokenizer(options.tokenizer_model);
        // Reads again only to say which token it is.
        if (range.min < 0 || range.max >= given->vocab_size()) {
            check_tokens(source, given->vocab_size(), most);
        }
        return given;
    }
    if (range.max == ByteTokenizer::kEndOfDocument && range.min >= 0) {
        return std::make_unique<ByteTokenizer>();
    }
    auto found = open_tokenizer_beside(source.info().name);
    return found && range.max < found->vocab_size() ? std::move(found) : nullptr;
}

void print_text(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
    const auto end = std::find(tokens.begin(), tokens.end(), tokenizer.end_of_document());
    print("first text", quoted(tokenizer.decode({tokens.begin(), end}), kTextBytes));
}

/// Document number `document`, or the beginning of it.
LearntText document_text(const TokenSource& source, const Tokenizer& tokenizer, int64_t document) {
    std::array<int64_t, 2> ends{};
    source.read_document_starts(document, ends);
    return learnt_text(source, tokenizer, document, ends[0], ends[1] - ends[0], kTextTokens);
}

void print_document(const InspectArguments& options, const TokenSource& source,
                    const Tokenizer& tokenizer, int64_t document) {
    const bool underline = options.color == "always" || (options.color == "auto" && wants_color());
    const LearntText text = document_text(source, tokenizer, document);
    print("document", std::to_string(document) + ", " + std::to_string(text.learnt) + " of " +
                          counted(text.tokens, "token") + " learnt (" +
                          (underline ? "underlined" : "{+so+}") + ")");
    std::fputs(marked_lines(text, underline).c_str(), stdout);
}

void write_page(const InspectArguments& options, const TokenSource& source,
                const Tokenizer& tokenizer) {
    const TokenSourceInfo& info = source.info();
    std::vector<std::string> files = info.files;
    for (const std::string& one : {info.index, info.loss_weights, options.tokenizer_model}) {
        if (!one.empty()) files.push_back(one);
    }
    OutputCheck check(std::move(files));
    check.add("--html", options.html, page_output());
    std::vector<LearntText> texts;
    const int64_t shown = std::min(kPageTexts, info.documents);
    for (int64_t i = 0; i < shown; ++i) {
        // The middles of equal parts.
        texts.push_back(
            document_text(source, tokenizer, (2 * i + 1) * info.documents / (2 * shown)));
    }
    OutputFile file(options.html);
    file.write(learnt_page(info.name, tokenizer.name(), texts));
    file.publish();
    print("page", options.html + "; open it in a browser");
}

/// What --document and --html need.
void require_documents(const InspectArguments& options, const TokenSourceInfo& info,
                       const Tokenizer* tokenizer) {
    const std::string flag =
        options.document ? "--document " + std::to_string(*options.document) : "--html";
    if (info.documents < 0) {
        throw UsageError(flag + ": " + info.name + " does not say where documents begin; use a " +
                         "Megatron indexed dataset");
    }
    if (tokenizer == nullptr) {
        throw UsageError(flag + ": no tokenizer is known for " + info.name +
                         "; give it with --tokenizer-model");
    }
    if (options.document && *options.document >= info.documents) {
        throw UsageError(flag + ": " + info.name + " has " + counted(info.documents, "document") +
                         ", numbered from 0");
    }
}

/// Returns why no run can train on these parts; empty: one can.
std::string print_parts(const std::shared_ptr<const TokenSource>& source, const std::string& text) {
    const SplitProportions proportions(text);
    std::string why;
    for (const DataSplit split : kDataSplits) {
        const auto part = cut_split(source, proportions, split);
        const int64_t documents = part->info().documents;
        print(std::string(to_string(split)).c_str(),
              (documents < 0 ? "" : counted(documents, "document") + ", ") +
                  counted(part->size(), "token"));
        // No run reads the test part, so it may be empty.
        if (part->size() == 0 && proportions[split] > 0 && split != DataSplit::test) {
            why = empty_part(source->info(), split);
        }
    }
    return why;
}

void print_loss_weights(const TokenSource& source) {
    if (source.info().loss_weights.empty()) return;
    const LossWeightsFile file(source.info().loss_weights);
    const LossWeightsFile::Totals totals = file.check();
    const double share = source.size() == 0 ? 0
                                            : static_cast<double>(totals.positive) /
                                                  static_cast<double>(source.size());
    print("loss weights", std::string(to_string(file.type())) + ", sum " +
                              format("%.10g", totals.sum) + ", above 0 for " + percent_text(share) +
                              " of the tokens");
}

/// What a run that packs makes of the training part.
void print_packing(const InspectArguments& options, const std::string& path) {
    const TrainingData data({.path = {path},
                             .format = options.format,
                             .split = options.split,
                             .eod_token_id = options.eod_token_id,
                             .packing_strategy = options.packing_strategy,
                             .length_buckets = options.length_buckets});
    const std::vector<int64_t> lengths = data.length_buckets(options.seq_length, {});
    const auto samples =
        data.samples(DataSplit::train, {.seq_length = options.seq_length}, lengths);
    for (const std::string& line : samples->packing()) print("packed", line);
}

/// Documents of the training part by their rows, for vocabpipe plan.
void write_lengths(const InspectArguments& options) {
    const TrainingData data({.path = options.path,
                             .format = options.format,
                             .split = options.split,
                             .eod_token_id = options.eod_token_id,
                             .packing_strategy = "bfd"});
    OutputCheck check(data.files());
    check.add("--length-distribution", options.length_distribution, length_distribution_output());
    write_length_distribution(options.length_distribution, data.document_lengths());
}

struct Inspected {
    int64_t vocab_size = 0;  ///< smallest one with all of its tokens
    std::string obstacle;    ///< why no run can train on it; empty: one can
};

/// Reads up to `most` tokens.
Inspected inspect_one(const InspectArguments& options, const std::string& path, int64_t most) {
    Inspected result;
    const std::shared_ptr<const TokenSource> source =
        open_tokens(path, parse_data_format(options.format));
    const TokenSourceInfo& info = source->info();
    const TokenRange range = options.vocab_size > 0
                                 ? check_tokens(*source, options.vocab_size, most)
                                 : token_range(*source, most);
    print("data", info.name);
    print("format", info.format);
    if (info.files.size() != 1) {
        print("files", static_cast<int64_t>(info.files.size()));
    }
    if (info.documents >= 0) {
        print("documents", info.documents);
    }
    if (info.sequences >= 0 && info.sequences != info.documents) {
        print("sequences", info.sequences);
    }
    print("tokens", source->size());
    if (!options.split.empty()) {
        result.obstacle = print_parts(source, options.split);
    }
    print("token type", std::string(token_type_name(info.type)));
    print("bytes", info.bytes);
    print_loss_weights(*source);
    if (source->size() == 0) {
        return result;
    }
    if (options.packing_strategy != "wrapped") print_packing(options, path);
    std::string ids = std::to_string(range.min) + " to " + std::to_string(range.max);
    if (range.read < source->size()) {
        ids += " in the " + counted(range.read, "token") +
               " that were read; --all-tokens reads all of them";
    }
    print("token ids", ids);
    if (const auto end = find_end_of_document(*source)) {
        print("documents end", "with token " + std::to_string(*end));
    }
    const std::unique_ptr<Tokenizer> tokenizer = find_tokenizer(options, *source, range, most);
    std::vector<int32_t> tokens(static_cast<size_t>(std::min(kTextTokens, source->size())));
    source->read(0, tokens);
    const auto first =
        std::span(tokens).first(std::min(tokens.size(), static_cast<size_t>(kFirstTokens)));
    print("first tokens", joined(first, " ") + (source->size() > kFirstTokens ? " ..." : ""));
    if (tokenizer) {
        print("tokenizer", tokenizer->name());
    }
    if (options.document || !options.html.empty())
        require_documents(options, info, tokenizer.get());
    if (options.document) {
        print_document(options, *source, *tokenizer, *options.document);
    } else if (tokenizer && !info.loss_weights.empty() && info.documents > 0) {
        print_document(options, *source, *tokenizer, 0);
    } else if (tokenizer) {
        print_text(*tokenizer, tokens);
    }
    if (!options.html.empty()) write_page(options, *source, *tokenizer);
    const int64_t vocab_size = options.vocab_size > 0 ? options.vocab_size
                               : tokenizer            ? tokenizer->vocab_size()
                                                      : 0;
    result.vocab_size = std::max(vocab_size, int64_t{range.max} + 1);
    return result;
}

void inspect(const InspectArguments& options) {
    if (options.packing_strategy != "wrapped" && options.seq_length == 0) {
        throw UsageError("--packing-strategy " + options.packing_strategy +
                         ": set --seq-length, the longest length of a sequence");
    }
    if (options.length_buckets == "auto") {
        throw UsageError(
            "--length-buckets auto: depends on the model, which is not known here; set lengths, "
            "or see what train_gpt prints");
    }
    if (!options.length_buckets.empty() && options.packing_strategy == "wrapped") {
        throw UsageError("--length-buckets " + options.length_buckets +
                         ": needs --packing-strategy bfd or padded");
    }
    const std::vector<WeightedPath> blend = parse_data_paths("data inspect", options.path);
    if (blend.size() > 1 && (options.document || !options.html.empty())) {
        throw UsageError((options.document ? "--document: " : "--html: ") +
                         std::string("shows one data set; name it alone"));
    }
    int64_t vocab_size = 0;
    std::string obstacle;
    std::string flag = "--data-path";
    const int64_t most =
        options.all_tokens ? kAllTokens : kCheckedTokens / static_cast<int64_t>(blend.size());
    for (const WeightedPath& part : blend) {
        if (blend.size() > 1) {
            print("share", percent_text(part.weight));
        }
        const Inspected one = inspect_one(options, part.path, most);
        vocab_size = std::max(vocab_size, one.vocab_size);
        if (!one.obstacle.empty()) obstacle = one.obstacle;
    }
    if (vocab_size == 0) {
        return;
    }
    if (!options.length_distribution.empty()) write_lengths(options);
    if (!obstacle.empty()) {
        print("cannot train", obstacle);
        return;
    }
    for (const std::string& word : options.path) {
        flag += " " + word;
    }
    // On one line, however long, so that it can be copied.
    const std::string flags =
        flag + (options.split.empty() ? "" : " --split " + options.split) + " --vocab-size " +
        std::to_string(vocab_size) +
        (options.format == "auto" ? "" : " --data-format " + options.format) +
        (options.packing_strategy == "wrapped"
             ? ""
             : " --packing-strategy " + options.packing_strategy + " --seq-length " +
                   std::to_string(options.seq_length)) +
        (options.length_buckets.empty() ? "" : " --length-buckets " + options.length_buckets) +
        (options.eod_token_id < 0 ? "" : " --eod-token-id " + std::to_string(options.eod_token_id));
    std::printf("%-*s%s\n", static_cast<int>(kKeys), "train with", flags.c_str());
}

}  // namespace

Command data_inspect_command() {
    const auto o = std::make_shared<InspectArguments>();
    return {.name = "inspect",
            .description = "Check token files and show their contents",
            .flags = {{.flags = {{.names = "path",
                                  .value = &o->path,
                                  .help = "Prefix of a .bin/.idx pair, llm.c files or raw files (a "
                                          "name, a quoted pattern or a comma-separated list), or a "
                                          "blend: WEIGHT PATH WEIGHT PATH ..."},
                                 {.names = "--split",
                                  .value = &o->split,
                                  .help = "Proportions of the training, validation and test parts "
                                          "to show, such as 969,30,1"},
                                 {.names = "--vocab-size",
                                  .value = &o->vocab_size,
                                  .help = "Fail if a token id is not below this size",
                                  .range = between(1, 0x1p31),
                                  .absent = 0},
                                 {.names = "--tokenizer-model",
                                  .value = &o->tokenizer_model,
                                  .help = "Tokenizer for showing text: a file, or a folder",
                                  .unset = "the one beside PREFIX.bin"},
                                 {.names = "--data-format",
                                  .value = &o->format,
                                  .help = "Format of the files: auto, or raw-u8, raw-u16 or "
                                          "raw-u32 for files without a header",
                                  .choices = {"auto", "raw-u8", "raw-u16", "raw-u32"}},
                                 {.names = "--packing-strategy",
                                  .value = &o->packing_strategy,
                                  .help = "bfd: show how documents of the training part pack into "
                                          "sequences of --seq-length; padded: a sequence for each",
                                  .unit = "NAME",
                                  .choices = {"wrapped", "bfd", "padded"}},
                                 {.names = "--length-buckets",
                                  .value = &o->length_buckets,
                                  .help = "Lengths that these sequences may have, with commas "
                                          "between them, --seq-length among them",
                                  .unit = "LENGTHS",
                                  .unset = "--seq-length"},
                                 {.names = "--length-distribution",
                                  .value = &o->length_distribution,
                                  .help = "Also write how many documents of the training part have "
                                          "each length to this CSV file, for vocabpipe plan",
                                  .unit = "FILE"},
                                 {.names = "--seq-length",
                                  .value = &o->seq_length,
                                  .help = "Tokens of a packed sequence",
                                  .range = at_least(1),
                                  .absent = 0},
                                 {.names = "--eod-token-id",
                                  .value = &o->eod_token_id,
                                  .help = "ID of the token that ends a document",
                                  .unit = "ID",
                                  .range = between(0, 0x1p31 - 1),
                                  .unset = "from the data",
                                  .absent = -1},
                                 {.names = "--document",
                                  .value = &o->document,
                                  .help = "Show this document, from 0, with learnt tokens marked",
                                  .unit = "N",
                                  .range = between(0, 0x1p53)},
                                 {.names = "--color",
                                  .value = &o->color,
                                  .help = "Underline learnt tokens: always, never, or auto, on a "
                                          "terminal; {+so+} marks them otherwise",
                                  .unit = "WHEN",
                                  .choices = {"auto", "always", "never"}},
                                 {.names = "--html",
                                  .value = &o->html,
                                  .help = "Write a page of documents with learnt tokens underlined",
                                  .unit = "FILE"},
                                 {.names = "--all-tokens",
                                  .value = &o->all_tokens,
                                  .help = "Read every token; else, of more than 537 million, "
                                          "evenly spaced ones"}}}},
            .run = [o](const GivenFlags&) { inspect(*o); }};
}

}  // namespace vocabpipe::tool
