// SPDX-License-Identifier: Apache-2.0
// vocabpipe data prepare: converts text to token files, and trains a tokenizer if asked to.
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/data/carried_tokenizer.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/interrupt.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/progress.hpp"
#include "src/train/data/document_splitter.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "src/train/data/text_file.hpp"
#include "src/train/data/text_input.hpp"
#include "src/train/data/utf8_check.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "src/train/tokenizer/open_tokenizer.hpp"
#include "src/train/tokenizer/sentencepiece_tokenizer.hpp"
#include "src/train/tokenizer/sentencepiece_training.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct PrepareArguments {
    std::vector<std::string> inputs;
    std::string output;
    std::string tokenizer;   // empty: bytes, or sentencepiece with a model file
    int64_t vocab_size = 0;  // 0: not given
    std::string tokenizer_model;
    std::string separator = "file";
    bool separator_given = false;
    std::string format = "auto";
    std::string json_key = "text";
};

/// The tokenizer, and the bytes of its model if it was trained here.
struct Vocabulary {
    std::unique_ptr<Tokenizer> tokenizer;
    std::string trained_model;
};

/// The prefix, even if one of the two files was named.
std::string output_prefix(const std::string& output) {
    std::string prefix = output;
    if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) {
        prefix.resize(prefix.size() - 4);
    }
    if (prefix.empty() || prefix.ends_with('/')) {
        throw UsageError("--output " + output +
                         ": is a folder; use a prefix, such as data/mytext for data/mytext.bin and "
                         "data/mytext.idx");
    }
    return prefix;
}

bool keeps_bytes(const PrepareArguments& options) {
    return options.tokenizer == "bytes" ||
           (options.tokenizer.empty() && options.tokenizer_model.empty());
}

void check_options(const PrepareArguments& options) {
    const bool model_given = !options.tokenizer_model.empty();
    if (options.tokenizer == "bytes" && model_given) {
        throw UsageError("--tokenizer-model: requires --tokenizer sentencepiece, got bytes");
    }
    const bool bytes = keeps_bytes(options);
    if (bytes && options.vocab_size != 0 && options.vocab_size != ByteTokenizer::kVocabSize) {
        throw UsageError("--vocab-size " + std::to_string(options.vocab_size) +
                         ": the bytes tokenizer has 257 ids; remove --vocab-size or use "
                         "--tokenizer sentencepiece");
    }
    if (!bytes && !model_given && options.vocab_size == 0) {
        throw UsageError(
            "--tokenizer sentencepiece: requires --vocab-size N to train a vocabulary, or "
            "--tokenizer-model FILE to use one");
    }
}

/// Tells the JSON lines among the files.
std::vector<TextInput> find_inputs(const PrepareArguments& options) {
    std::vector<TextInput> inputs;
    for (const std::string& path : options.inputs) {
        const bool lines =
            options.format == "jsonl" || (options.format == "auto" && holds_json_lines(path));
        if (lines && options.separator_given) {
            throw UsageError("--document-separator " + options.separator + ": each line of " +
                             path + " is a document; leave it out, or use --input-format text");
        }
        inputs.push_back({path, lines ? options.json_key : std::string()});
    }
    return inputs;
}

/// Outputs may replace older outputs, but neither an input nor other files.
void check_outputs(const PrepareArguments& options) {
    std::vector<std::string> inputs = options.inputs;
    if (!options.tokenizer_model.empty()) inputs.push_back(options.tokenizer_model);
    OutputCheck check(std::move(inputs));
    const OutputKind ours = tokens_output(options.output);
    check.add("--output", options.output + ".bin", ours);
    check.add("--output", options.output + ".idx", ours);
    OutputCheck beside(options.inputs);
    CarriedTokenizer::check(beside, options.output, options.tokenizer_model, ours);
}

/// Refused only for SentencePiece, which would learn from U+FFFD in place of each such byte; for
/// the byte tokenizer, any bytes are tokens.
void refuse_binary(const PrepareArguments& options, const TextCheck& text) {
    const int64_t strange = text.invalid + text.zeros;
    if (keeps_bytes(options) || strange * 10 < text.bytes || strange == 0) return;
    throw InputFileError(
        options.inputs.front() + (options.inputs.size() > 1 ? " and the other inputs" : "") + ": " +
        std::to_string(text.invalid) + " of " + std::to_string(text.bytes) +
        " bytes are not UTF-8 and " + std::to_string(text.zeros) +
        " are zero, so this is not text; convert it to UTF-8 or use --tokenizer bytes");
}

/// Prints to standard error what happened to bytes that are not text.
void note_invalid(const PrepareArguments& options, const TextCheck& text) {
    if (text.invalid == 0) return;
    std::fprintf(stderr, "vocabpipe: note: %lld of %lld bytes are not UTF-8, first in %s; %s\n",
                 static_cast<long long>(text.invalid), static_cast<long long>(text.bytes),
                 text.first.c_str(),
                 keeps_bytes(options) ? "they are kept unchanged" : "each is replaced by U+FFFD");
}

Vocabulary make_vocabulary(const PrepareArguments& options, const std::vector<TextInput>& inputs,
                           ProgressLine& progress) {
    if (!options.tokenizer_model.empty()) {
        auto loaded = open_tokenizer(options.tokenizer_model);
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

/// Reads, splits, encodes and writes all inputs. Output appears when the writer finishes.
void tokenize(const PrepareArguments& options, const std::vector<TextInput>& inputs,
              const Tokenizer& tokenizer, int64_t total_bytes, ProgressLine& progress,
              MegatronWriter& writer) {
    const InterruptGuard interrupt;
    std::vector<int32_t> ids;
    int64_t bytes = 0;
    int64_t tokens = 0;
    DocumentSplitter splitter(parse_document_separator(options.separator),
                              {.piece =
                                   [&](std::string_view text) {
                                       interrupt.check();
                                       ids.clear();
                                       tokenizer.encode(text, ids);
                                       writer.append(ids);
                                       tokens += static_cast<int64_t>(ids.size());
                                       progress.show(bytes, total_bytes, tokens);
                                   },
                               .end =
                                   [&] {
                                       const int32_t end = tokenizer.end_of_document();
                                       writer.append({&end, 1});
                                       writer.end_document();
                                       ++tokens;
                                   }});
    for (const TextInput& input : inputs) {
        read_text(input, {.text = [&](std::string_view block) { splitter.feed(block); },
                          .end = [&] { splitter.end_file(); },
                          .progress =
                              [&](int64_t read) {
                                  interrupt.check();
                                  bytes += read;
                              }});
    }
    if (tokens == 0) {
        throw InputFileError(options.inputs.front() +
                             (options.inputs.size() > 1 ? " and the other inputs" : "") +
                             ": no text found, so there is nothing to write");
    }
}

/// Publishes the tokenizer and the token files: all of them or none.
MegatronTotals publish(const PrepareArguments& options, const std::string& trained_model,
                       MegatronWriter& writer) {
    CarriedTokenizer carried(options.output);
    if (!trained_model.empty()) carried.take_model(trained_model);
    if (!options.tokenizer_model.empty()) carried.take_files(options.tokenizer_model);
    carried.publish();
    try {
        return writer.finish();
    } catch (...) {
        carried.remove();
        throw;
    }
}

void prepare(PrepareArguments options) {
    const auto begin = std::chrono::steady_clock::now();
    options.output = output_prefix(options.output);
    check_options(options);
    int64_t total_bytes = 0;
    for (const std::string& input : options.inputs) {
        total_bytes += text_file_bytes(input);
    }
    const std::vector<TextInput> inputs = find_inputs(options);
    check_outputs(options);
    const TextCheck text = [&] {
        const LongWork work("reading the text");
        return check_text_files(options.inputs);
    }();
    refuse_binary(options, text);
    { const OutputFile probe(options.output + ".bin"); }  // fails before the training, not after it

    ProgressLine progress(/*everywhere=*/true);
    const Vocabulary vocabulary = make_vocabulary(options, inputs, progress);
    const Tokenizer& tokenizer = *vocabulary.tokenizer;
    MegatronWriter writer(options.output, tokenizer.vocab_size());
    tokenize(options, inputs, tokenizer, total_bytes, progress, writer);
    progress.announce("writing ...");
    const MegatronTotals totals = publish(options, vocabulary.trained_model, writer);
    progress.clear();
    note_invalid(options, text);

    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    const std::string type(token_type_name(totals.type));
    std::array<char, 32> seconds;
    std::snprintf(seconds.data(), seconds.size(), "%.1f s", elapsed.count());
    const std::string made = options.output + ": " + counted(totals.documents, "document") + ", " +
                             counted(totals.tokens, "token") + ", " +
                             counted(totals.bytes, "byte") + ", " + seconds.data();
    std::printf("%s\ntoken type %s, vocabulary size %lld\n", wrap_text(made, 4).c_str(),
                type.c_str(), static_cast<long long>(tokenizer.vocab_size()));
    std::printf("train with: --data-path %s --vocab-size %lld\n", options.output.c_str(),
                static_cast<long long>(tokenizer.vocab_size()));
}

}  // namespace

Command data_prepare_command() {
    const auto o = std::make_shared<PrepareArguments>();
    return {
        .name = "prepare",
        .description = "Convert text files to PREFIX.bin and PREFIX.idx",
        .flags = {{.flags = {{.names = "--input",
                              .value = &o->inputs,
                              .help = "Text in UTF-8 (any bytes with --tokenizer bytes), or JSON "
                                      "lines",
                              .repeats = true,
                              .required = true},
                             {.names = "--output",
                              .value = &o->output,
                              .help = "Prefix of the output files: PREFIX.bin, PREFIX.idx and, "
                                      "but for bytes, the tokenizer's: PREFIX.model or "
                                      "PREFIX.tokenizer.json, and what lies beside it",
                              .required = true},
                             {.names = "--tokenizer",
                              .value = &o->tokenizer,
                              .help =
                                  "bytes: 257 ids, no model (default); sentencepiece: a trained "
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
                              .help = "text; jsonl: a JSON object per line, each a document; auto: "
                                      "jsonl where the first line is an object",
                              .choices = {"auto", "text", "jsonl"}},
                             {.names = "--json-key,--json-keys",
                              .value = &o->json_key,
                              .help = "Key of the text in JSON lines"}}}},
        .run = [o](const GivenFlags& given) {
            o->separator_given = given.contains("--document-separator");
            prepare(*o);
        }};
}

}  // namespace vocabpipe::tool
