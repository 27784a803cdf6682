// SPDX-License-Identifier: Apache-2.0
// vocabpipe data prepare: converts text to token files, and trains a tokenizer if asked to.
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/support/json_text.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/support/partial_file.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/text_layout.hpp"
#include "src/support/usable_cores.hpp"
#include "src/tool/data/carried_tokenizer.hpp"
#include "src/tool/data/prepare_arguments.hpp"
#include "src/tool/data/text_progress.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/interrupt.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/data/matching_files.hpp"
#include "src/train/prepare/prepare_tokens.hpp"
#include "src/train/text/document_splitter.hpp"
#include "src/train/text/parquet_texts.hpp"
#include "src/train/text/text_file.hpp"
#include "src/train/text/text_input.hpp"
#include "src/train/text/utf8_check.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "src/train/tokenizer/open_tokenizer.hpp"
#include "src/train/tokenizer/sentencepiece_tokenizer.hpp"
#include "src/train/tokenizer/sentencepiece_training.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

constexpr int kMostWorkers = 1024;  // as many cores as an affinity mask has

/// The tokenizer, and the bytes of its model if it was trained here.
struct Vocabulary {
    std::unique_ptr<Tokenizer> tokenizer;
    std::string trained_model;
};

TextKind kind_of(const PrepareArguments& options, const std::string& path) {
    if (options.format == "auto") return text_kind(path);
    return options.format == "jsonl"   ? TextKind::json_lines
           : options.format == "chats" ? TextKind::chats
                                       : TextKind::plain;
}

/// Weights are for all tokens of a set.
void refuse_other_chats(const std::vector<TextInput>& inputs) {
    const TextInput& first = inputs.front();
    for (const TextInput& input : inputs) {
        if (input.chats == first.chats) continue;
        throw UsageError("--input " + (input.chats ? input : first).path +
                         ": says what is learnt, but " + (input.chats ? first : input).path +
                         " does not; prepare them apart and train on a blend, or use "
                         "--input-format jsonl to learn all text");
    }
}

/// Tells the JSON lines, the chats and the tables among the files.
std::vector<TextInput> find_inputs(const PrepareArguments& options) {
    std::vector<TextInput> inputs;
    for (const std::string& path : options.inputs) {
        const TextKind kind = kind_of(options, path);
        const bool lines = kind != TextKind::plain, rows = kind == TextKind::parquet;
        if (rows) check_parquet_texts(path, options.json_keys.front());
        if (lines && options.separator_given) {
            throw UsageError("--document-separator " + options.separator + ": each " +
                             (rows ? "row" : "line") + " of " + path +
                             " is a document; leave it out, or use --input-format text");
        }
        inputs.push_back({.path = path,
                          .json_key = lines ? options.json_keys.front() : std::string(),
                          .chats = kind == TextKind::chats,
                          .parquet = rows});
    }
    refuse_other_chats(inputs);
    return inputs;
}

/// Outputs may replace older outputs, but neither an input nor other files.
void check_outputs(const PrepareArguments& options, const TokenizerFiles& tokenizer, bool chats) {
    std::vector<std::string> inputs = options.inputs;
    for (const auto& [name, file] : tokenizer) inputs.push_back(file);
    OutputCheck check(std::move(inputs));
    const OutputKind ours = tokens_output(options.output);
    check.add("--output", options.output + ".bin", ours);
    check.add("--output", options.output + ".idx", ours);
    if (chats) check.add("--output", options.output + ".weights", loss_weights_output());
    CarriedTokenizer::check(check, options.output, tokenizer, ours);
}

/// Refused for SentencePiece alone, which would learn from U+FFFD in place of each such byte; for
/// the byte tokenizer, any bytes are tokens.
void refuse_binary(const PrepareArguments& options, const std::vector<TextInput>& inputs,
                   const TextCheck& text) {
    const int64_t strange = text.invalid + text.zeros;
    if (options.keeps_bytes() || strange * 10 < text.bytes || strange == 0) return;
    throw InputFileError(
        about_inputs(inputs) + ": " + std::to_string(text.invalid) + " of " +
        std::to_string(text.bytes) + " bytes are not UTF-8 and " + std::to_string(text.zeros) +
        " are zero, so this is not text; convert it to UTF-8 or use --tokenizer bytes");
}

/// Prints to standard error what happened to bytes that are not text.
void note_invalid(const PrepareArguments& options, const TextCheck& text) {
    if (text.invalid == 0) return;
    std::fprintf(stderr, "vocabpipe: note: %lld of %lld bytes are not UTF-8, first in %s; %s\n",
                 static_cast<long long>(text.invalid), static_cast<long long>(text.bytes),
                 text.first.c_str(),
                 options.keeps_bytes() ? "they are kept unchanged" : "each is replaced by U+FFFD");
}

Vocabulary make_vocabulary(const PrepareArguments& options, const std::vector<TextInput>& inputs,
                           TextProgress& progress) {
    if (!options.tokenizer_model.empty()) {
        auto loaded = open_tokenizer(options.tokenizer_model);
        if (!options.tokenizer.empty() && options.tokenizer != loaded->name()) {
            throw UsageError("--tokenizer " + options.tokenizer + ": " + options.tokenizer_model +
                             " is one of " + loaded->name() + "; remove --tokenizer");
        }
        if (options.vocab_size != 0 && options.vocab_size != loaded->vocab_size()) {
            throw UsageError("--vocab-size " + std::to_string(options.vocab_size) + ": " +
                             options.tokenizer_model + " has " +
                             std::to_string(loaded->vocab_size()) + " ids; remove --vocab-size");
        }
        return {std::move(loaded), {}};
    }
    if (options.tokenizer == "sentencepiece") {
        SentencePieceTrainingOptions training;
        training.vocab_size = options.vocab_size;
        training.leave_out_bad_lines = options.max_bad_lines > 0;
        SentencePieceVocabulary trained_here = [&] {
            const LongWork work("training the vocabulary");
            return train_sentencepiece(inputs, training);
        }();
        if (trained_here.unbroken_left_out > 0) {
            progress.clear();
            std::fprintf(
                stderr,
                "vocabpipe: note: the vocabulary was trained without %.1f MB of the %.1f MB of "
                "text that has no white space for thousands of bytes; all text is encoded\n",
                static_cast<double>(trained_here.unbroken_left_out) * 1e-6,
                static_cast<double>(trained_here.unbroken) * 1e-6);
        }
        std::string model = std::move(trained_here.model);
        auto trained = std::make_unique<SentencePieceTokenizer>(model, options.output + ".model");
        return {std::move(trained), std::move(model)};
    }
    return {std::make_unique<ByteTokenizer>(), {}};
}

/// What a preparation must have in common with one that was killed, to go on with it.
std::string state_arguments(const PrepareArguments& options, const std::vector<TextInput>& inputs,
                            const TokenizerFiles& tokenizer) {
    nlohmann::ordered_json json{
        {"tokenizer", options.tokenizer}, {"vocab_size", options.vocab_size},
        {"separator", options.separator}, {"max_bad_lines", options.max_bad_lines},
        {"chats", inputs.front().chats},  {"files", nlohmann::ordered_json::array()}};
    const auto add_file = [&](const std::string& path, const std::string& key) {
        struct stat state {};
        (void)::stat(path.c_str(), &state);  // zeros if it is missing, which reading it reports
        json["files"].push_back({std::filesystem::absolute(path).string(), key,
                                 static_cast<int64_t>(state.st_size), state.st_mtim.tv_sec,
                                 state.st_mtim.tv_nsec});
    };
    for (const TextInput& input : inputs) add_file(input.path, input.json_key);
    for (const auto& [name, file] : tokenizer) add_file(file, name);
    return json_text(json);
}

/// Refuses what is no text before a vocabulary is learned from it: that takes a pass over the text,
/// which encoding does not need.
void check_before_training(const PrepareArguments& options, const std::vector<TextInput>& inputs) {
    std::vector<std::string> plain;
    for (const TextInput& input : inputs) {
        if (input.json_key.empty()) plain.push_back(input.path);
    }
    const LongWork work("reading the text");
    refuse_binary(options, inputs, check_text_files(plain));
}

/// The model that a killed preparation trained, or a new one.
Vocabulary vocabulary_of(const PrepareArguments& options, const std::vector<TextInput>& inputs,
                         const std::optional<PreparationState>& from, TextProgress& progress) {
    if (!options.trains()) return make_vocabulary(options, inputs, progress);
    if (from) {
        std::string model = read_whole_file(PartialFile::name_of(options.output + ".model"), "");
        auto trained = std::make_unique<SentencePieceTokenizer>(model, options.output + ".model");
        return {std::move(trained), std::move(model)};
    }
    check_before_training(options, inputs);
    return make_vocabulary(options, inputs, progress);
}

void print_totals(const PrepareArguments& options, const Prepared& prepared, int64_t vocab_size,
                  double seconds) {
    const MegatronTotals& totals = prepared.totals;
    std::string made = options.output + ": " + counted(totals.documents, "document") + ", " +
                       counted(totals.tokens, "token") + ", " + counted(totals.bytes, "byte") +
                       ", " + format("%.1f s", seconds);
    std::printf("%s\ntoken type %s, vocabulary size %lld\n", wrap_text(made, 4).c_str(),
                std::string(token_type_name(totals.type)).c_str(),
                static_cast<long long>(vocab_size));
    if (prepared.bad_lines > 0) {
        std::printf("left out: %s\n", counted(prepared.bad_lines, "bad line").c_str());
    }
    std::printf("train with: --data-path %s --vocab-size %lld\n", options.output.c_str(),
                static_cast<long long>(vocab_size));
}

/// The token files of one key, or of text.
struct TokenSet {
    PrepareArguments options;
    std::vector<TextInput> inputs;
    TokenizerFiles tokenizer;
    std::string arguments;  ///< PreparationState::arguments
    FoundState found;
};

/// Refuses what it can before a set is written.
TokenSet open_set(const PrepareArguments& options) {
    TokenSet set{.options = options, .inputs = find_inputs(options)};
    if (!options.tokenizer_model.empty()) {
        set.tokenizer = files_of_tokenizer(options.tokenizer_model);
    }
    check_outputs(options, set.tokenizer, set.inputs.front().chats);
    { const OutputFile probe(options.output + ".bin"); }  // fails before the training, not after it
    set.arguments = state_arguments(options, set.inputs, set.tokenizer);
    set.found = find_preparation_state(options.output, set.arguments, set.inputs.size());
    return set;
}

/// Several keys are of JSON lines.
void refuse_inputs_without_keys(const PrepareArguments& options,
                                const std::vector<TextInput>& inputs) {
    for (const TextInput& input : inputs) {
        if (!input.json_key.empty() && !input.chats) continue;
        throw UsageError(options.keys_text() + ": " + input.path +
                         (input.chats ? " has chats, of which one key is what is learnt"
                                      : " is plain text, which has no keys") +
                         "; prepare it apart");
    }
}

/// The sets before the one that a kill left in part were written by then.
size_t first_unwritten(const std::vector<TokenSet>& sets) {
    for (size_t i = sets.size(); i-- > 1;) {
        if (!sets[i].found.state) continue;
        const bool whole = std::all_of(
            sets.begin(), sets.begin() + static_cast<std::ptrdiff_t>(i), [](const TokenSet& set) {
                return std::filesystem::exists(set.options.output + ".idx");
            });
        if (whole) return i;
    }
    return 0;
}

void prepare_set(TokenSet& set, int64_t input_bytes) {
    const auto begin = std::chrono::steady_clock::now();
    const PrepareArguments& options = set.options;
    const std::vector<TextInput>& inputs = set.inputs;
    FoundState& found = set.found;
    TextProgress progress(input_bytes);
    if (!found.why_anew.empty()) {
        std::fprintf(stderr, "vocabpipe: note: %s; beginning anew\n",
                     one_line(found.why_anew).c_str());
    }
    if (found.state) {
        std::fprintf(stderr, "vocabpipe: note: going on after %s of %s\n",
                     counted(found.state->position.tokens, "token").c_str(),
                     one_line(PreparationState::file_of(options.output)).c_str());
    }
    const Vocabulary vocabulary = vocabulary_of(options, inputs, found.state, progress);
    CarriedTokenizer carried(options.output);
    if (!vocabulary.trained_model.empty()) carried.take_model(vocabulary.trained_model);
    carried.take_files(set.tokenizer);
    const InterruptGuard interrupt;
    const Prepared prepared = prepare_tokens(
        {.inputs = inputs,
         .output = options.output,
         .separator = parse_document_separator(options.separator),
         .max_bad_lines = options.max_bad_lines,
         .workers = options.workers > 0 ? static_cast<int>(options.workers) : usable_cores(),
         .trained_model = vocabulary.trained_model,
         .arguments = set.arguments,
         .from = std::move(found.state),
         .poll = [&] { interrupt.check(); },
         .progress = [&](int64_t bytes, int64_t tokens) { progress.show(bytes, tokens); },
         .bad_line =
             [&](const std::string& line) {
                 progress.clear();
                 std::fprintf(stderr, "vocabpipe: note: left out %s\n", one_line(line).c_str());
             },
         .check_text =
             [&](const TextCheck& text) {
                 refuse_binary(options, inputs, text);
                 progress.announce("writing ...");
             },
         .publish_beside = [&] { carried.publish(); },
         .remove_beside = [&] { carried.remove(); }},
        *vocabulary.tokenizer);
    progress.clear();
    note_invalid(options, prepared.text);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    print_totals(options, prepared, vocabulary.tokenizer->vocab_size(), elapsed.count());
}

void prepare(PrepareArguments options) {
    options.check();
    std::vector<std::string> files;
    for (const std::string& input : options.inputs) append_matching_files(input, files);
    options.inputs = std::move(files);
    int64_t bytes = 0;
    for (const std::string& input : options.inputs) bytes += text_file_bytes(input);
    std::vector<TokenSet> sets;
    for (const PrepareArguments& of_key : options.of_keys()) {
        sets.push_back(open_set(of_key));
        if (options.json_keys.size() > 1) refuse_inputs_without_keys(options, sets.back().inputs);
    }
    for (size_t i = first_unwritten(sets); i < sets.size(); ++i) prepare_set(sets[i], bytes);
}

}  // namespace

Command data_prepare_command() {
    const auto o = std::make_shared<PrepareArguments>();
    return {
        .name = "prepare",
        .description = "Convert text files to PREFIX.bin and PREFIX.idx",
        .flags =
            {{.flags =
                  {{.names = "--input",
                    .value = &o->inputs,
                    .help = "Text in UTF-8 (any bytes with --tokenizer bytes) or JSON "
                            "lines, also compressed by gzip or zstd: files and quoted "
                            "patterns",
                    .repeats = true,
                    .required = true},
                   {.names = "--output",
                    .value = &o->output,
                    .help =
                        "Prefix of the output files: PREFIX.bin, PREFIX.idx, for "
                        "chats PREFIX.weights and, but for bytes, the tokenizer's: PREFIX.model or "
                        "PREFIX.tokenizer.json, and what lies beside it",
                    .required = true},
                   {.names = "--tokenizer",
                    .value = &o->tokenizer,
                    .help = "bytes: 257 ids, no model (default); sentencepiece: a trained "
                            "vocabulary",
                    .choices = {"bytes", "sentencepiece"}},
                   {.names = "--vocab-size",
                    .value = &o->vocab_size,
                    .help = "Size of the SentencePiece vocabulary to train",
                    .range = between(1, 0x1p30),
                    .absent = 0},
                   {.names = "--tokenizer-model",
                    .value = &o->tokenizer_model,
                    .help = "Use this tokenizer instead of training one: a "
                            "tokenizer.json of Hugging Face, a .model of SentencePiece, "
                            "a .tiktoken, or a folder that has one"},
                   {.names = "--document-separator",
                    .value = &o->separator,
                    .help = "Where a document ends: at the end of a file, at "
                            "blank-lines, or at every line",
                    .choices = {"file", "blank-lines", "line"}},
                   {.names = "--input-format",
                    .value = &o->format,
                    .help = "text; jsonl: a JSON object per line, each a document; "
                            "chats: the same with what is learnt, as render_chats.py "
                            "writes them; auto: by the first line",
                    .choices = {"auto", "text", "jsonl", "chats"}},
                   {.names = "--json-keys,--json-key",
                    .value = &o->json_keys,
                    .help = "Key of the text in JSON lines; several: the tokens of each in "
                            "PREFIX_KEY_document",
                    .repeats = true},
                   {.names = "--max-bad-lines",
                    .value = &o->max_bad_lines,
                    .help = "Leave out up to N lines of JSON without a document, and name "
                            "the first ten; beyond, write nothing",
                    .range = between(0, 0x1p40)},
                   {.names = "--workers",
                    .value = &o->workers,
                    .help = "Threads that encode; the output is the same for any number",
                    .range = between(1, kMostWorkers),
                    .unset = "all cores",
                    .absent = 0}}}},
        .run = [o](const GivenFlags& given) {
            o->separator_given = given.contains("--document-separator");
            prepare(*o);
        }};
}

}  // namespace vocabpipe::tool
