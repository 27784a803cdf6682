// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/sentencepiece_training.hpp"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/train/text/document_splitter.hpp"
#include "src/train/text/text_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

using std::to_string;

constexpr size_t kSentenceBytes = 4096;  // SentencePiece skips sentences above its limit

/// Pieces of lines: all of them, or a sample that depends only on their number.
class Sentences final : public sentencepiece::SentenceIterator {
public:
    Sentences(int64_t total_bytes, int64_t max_bytes, int64_t max_unbroken_bytes)
        : max_unbroken_(max_unbroken_bytes),
          keep_(total_bytes > max_bytes
                    ? static_cast<double>(max_bytes) / static_cast<double>(total_bytes)
                    : 1.0) {}

    void add_line(std::string_view line) {
        while (line.size() > kSentenceBytes) {
            const size_t cut = last_break(line.substr(0, kSentenceBytes));
            const std::string_view sentence = line.substr(0, cut);
            if (is_unbroken(sentence)) {
                add_unbroken(sentence);
            } else {
                add(sentence);
            }
            line.remove_prefix(cut);
        }
        add(line);
    }

    [[nodiscard]] bool done() const override { return at_ >= sentences_.size(); }
    void Next() override { ++at_; }
    [[nodiscard]] const std::string& value() const override { return sentences_[at_]; }
    [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }
    [[nodiscard]] bool empty() const { return sentences_.empty(); }
    [[nodiscard]] int64_t unbroken() const { return unbroken_; }
    [[nodiscard]] int64_t unbroken_left_out() const {
        return std::max<int64_t>(0, unbroken_ - max_unbroken_);
    }

private:
    static bool is_unbroken(std::string_view sentence) {
        return sentence.find_first_of(" \t\r\v\f") == std::string_view::npos;
    }
    void add_unbroken(std::string_view sentence) {
        unbroken_ += static_cast<int64_t>(sentence.size());
        if (unbroken_ <= max_unbroken_) add(sentence);
    }
    void add(std::string_view sentence) {
        // A Weyl sequence: spread evenly over the input, without a random generator.
        constexpr double kGoldenRatio = 0.6180339887498949;
        weyl_ += kGoldenRatio;
        weyl_ -= weyl_ >= 1.0 ? 1.0 : 0.0;
        if (!sentence.empty() && weyl_ < keep_) {
            sentences_.emplace_back(sentence);
        }
    }

    int64_t max_unbroken_;
    int64_t unbroken_ = 0;
    double keep_;
    double weyl_ = 0;
    std::vector<std::string> sentences_;
    size_t at_ = 0;
};

/// `bytes`: those of all inputs.
Sentences read_sentences(const std::vector<TextInput>& inputs, int64_t bytes,
                         const SentencePieceTrainingOptions& options) {
    Sentences sentences(bytes, options.max_bytes, options.max_unbroken_bytes);
    DocumentSplitter lines(
        DocumentSeparator::line,
        {.piece = [&](std::string_view line) { sentences.add_line(line); }, .end = [] {}});
    TextSink sink{.text = [&](std::string_view block) { lines.feed(block); },
                  .end = [&] { lines.end_file(); }};
    if (options.leave_out_bad_lines) sink.bad_line = [](int64_t, const std::string&) {};
    for (const TextInput& input : inputs) read_text(input, sink);
    if (sentences.empty()) {
        throw InputFileError(about_inputs(inputs) + ": no text to train a vocabulary on");
    }
    return sentences;
}

/// The number after `mark` in SentencePiece's message, or empty.
std::string number_behind(std::string_view message, std::string_view mark) {
    const size_t at = message.find(mark);
    if (at == std::string_view::npos) {
        return {};
    }
    const std::string_view rest = message.substr(at + mark.size());
    return std::string(rest.substr(0, rest.find_first_not_of("0123456789")));
}

[[noreturn]] void fail_training(const std::string& message, int64_t vocab_size,
                                int64_t trained_size) {
    const std::string flag = "--vocab-size " + to_string(vocab_size);
    const std::string largest = number_behind(message, "Please set it to a value <= ");
    if (!largest.empty()) {
        throw UsageError(flag + ": is too large for this text, which yields at most " + largest +
                         " pieces; use --vocab-size " + largest + " or less, or more text");
    }
    const std::string smallest =
        number_behind(message, "required_chars. " + to_string(trained_size) + " vs ");
    if (!smallest.empty()) {
        throw UsageError(
            flag +
            ": is too small for this text; its characters and the 256 bytes need --vocab-size " +
            smallest + " or more");
    }
    throw UsageError(flag + ": SentencePiece cannot train a vocabulary of this size: " + message);
}

}  // namespace

SentencePieceVocabulary train_sentencepiece(const std::vector<TextInput>& inputs,
                                            const SentencePieceTrainingOptions& options) {
    if (options.vocab_size < 1 || options.vocab_size > (int64_t{1} << 30)) {
        throw UsageError("--vocab-size " + to_string(options.vocab_size) +
                         ": must be from 1 to 1073741824");
    }
    // SentencePiece names the smallest possible size only from 2 on, and 2 is too small for any
    // text.
    const int64_t trained_size = std::max(options.vocab_size, int64_t{2});
    int64_t text_bytes = 0;
    for (const TextInput& input : inputs) text_bytes += text_file_bytes(input.path);
    // Bytes, two special pieces, characters, and a merge for every further one. For a short text,
    // SentencePiece itself finds the true limit quickly.
    constexpr int64_t kShort = 1 << 20;
    const int64_t most = 2 * text_bytes + 258;
    if (text_bytes > kShort && options.vocab_size > most) {
        throw UsageError("--vocab-size " + to_string(options.vocab_size) +
                         ": is too large for this text, which has " + to_string(text_bytes) +
                         " bytes and so yields fewer than " + to_string(most + 1) +
                         " pieces; use a smaller one, or more text");
    }
    Sentences sentences = read_sentences(inputs, text_bytes, options);
    const std::unordered_map<std::string, std::string> settings{
        {"model_type", "bpe"},  // unigram models stop at a third of the size on a few MB of text
        {"vocab_size", to_string(trained_size)},
        {"hard_vocab_limit", "true"},
        {"byte_fallback", "true"},
        {"character_coverage", "0.9999"},  // rarer characters become bytes
        // No normalisation and no added space: pieces of a document decode to exactly its text.
        {"normalization_rule_name", "identity"},
        {"remove_extra_whitespaces", "false"},
        {"add_dummy_prefix", "false"},
        {"unk_id", "0"},
        {"eos_id", "1"},
        {"bos_id", "-1"},
        {"pad_id", "-1"},
        {"max_sentence_length", to_string(2 * kSentenceBytes)},
        {"num_threads", "2"},
        {"minloglevel",
         "3"},  // SentencePiece logs to stderr; from here on only what ends the process
    };
    std::string model;
    const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &sentences, &model);
    if (!status.ok()) {
        fail_training(status.ToString(), options.vocab_size, trained_size);
    }
    return {.model = std::move(model),
            .unbroken = sentences.unbroken(),
            .unbroken_left_out = sentences.unbroken_left_out()};
}

}  // namespace vocabpipe
