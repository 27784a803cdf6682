// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "src/model/next_token.hpp"
#include "src/tool/commands.hpp"
#include "src/tool/interrupt.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/data/byte_tokenizer.hpp"
#include "src/train/data/sentencepiece_tokenizer.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct Options {
    std::string load;
    std::string prompt;
    std::string tokenizer_model;
    std::string tokenizer = "auto";
    int64_t max_new_tokens = 100;
    int64_t seq_length = 0;  // 0: what the run or the model was made for
    SamplingOptions sampling;
    uint64_t seed = 1234;
    int threads = 0;
};

/// The tokenizer that was named, else tokenizer.model beside the weights, else bytes where the
/// vocabulary is that of bytes.
std::unique_ptr<Tokenizer> find_tokenizer(const Options& o, const std::string& folder,
                                          int64_t vocab_size) {
    const auto sentencepiece = [&](const std::string& path) {
        auto found = std::make_unique<SentencePieceTokenizer>(SentencePieceTokenizer::load(path));
        if (found->vocab_size() > vocab_size) {
            throw UsageError("--tokenizer-model " + path + ": has " +
                             std::to_string(found->vocab_size()) +
                             " pieces, the model's vocabulary " + std::to_string(vocab_size) +
                             " rows; give the one that the model was trained with");
        }
        return found;
    };
    if (!o.tokenizer_model.empty()) return sentencepiece(o.tokenizer_model);
    const std::string beside = folder + "/tokenizer.model";
    std::error_code ignored;
    if (o.tokenizer != "bytes" && std::filesystem::is_regular_file(beside, ignored)) {
        return sentencepiece(beside);
    }
    if (o.tokenizer == "bytes" || vocab_size == ByteTokenizer::kVocabSize) {
        return std::make_unique<ByteTokenizer>();
    }
    throw UsageError(folder +
                     ": has no tokenizer.model; give --tokenizer-model FILE (SentencePiece), "
                     "or --tokenizer bytes");
}

/// Prints text as it grows; what a tokenizer says differently with more context is left out.
class GrowingText {
public:
    void show(const std::string& all) {
        if (!all.starts_with(shown_)) return;
        std::cout << all.substr(shown_.size()) << std::flush;
        shown_ = all;
    }

private:
    std::string shown_;
};

void generate_text(const Options& o) {
    const Checkpoint checkpoint(find_checkpoint(o.load, /*weights_only=*/true));
    ModelConfig config = checkpoint.config();
    // A context longer than needed costs memory for its positions only.
    config.seq_length = o.seq_length > 0 ? o.seq_length : config.max_position_embeddings;
    config.check();
    const std::unique_ptr<Tokenizer> tokenizer =
        find_tokenizer(o, checkpoint.folder(), config.vocab_size);

    std::string prompt = o.prompt;
    if (prompt == "-") prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    std::vector<int32_t> ids;
    tokenizer->encode(prompt, ids);
    if (ids.empty()) ids.push_back(tokenizer->end_of_document());  // where a document begins
    for (const int32_t id : ids) {
        if (id < config.vocab_size) continue;
        throw UsageError("--tokenizer " + tokenizer->name() + ": makes token " +
                         std::to_string(id) + " of the prompt, the model's vocabulary has " +
                         std::to_string(config.vocab_size) + " rows");
    }

    const int threads = o.threads > 0
                            ? o.threads
                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const std::unique_ptr<Device> device = make_host_device();
    Context ctx({.threads = threads, .poll = {}, .operators = &device->operators()});
    Schedule alone{.ranks = 1, .stages = 1, .microbatches = 1, .rank_of_stage = {0}};
    alone.input = alone.output = ShardMap::whole(config.vocab_size, 1, 0);
    ModelRank model(config, {.layers_per_stage = {config.num_layers}, .threads_per_rank = threads},
                    alone, 0, *device);
    checkpoint.fill(model, ctx);

    const InterruptGuard interrupt;
    NextToken next(model);
    std::mt19937_64 random(o.seed);
    GrowingText text;
    text.show(tokenizer->decode(ids));
    for (int64_t i = 0; i < o.max_new_tokens; ++i) {
        interrupt.check();
        const double u = static_cast<double>(random() >> 11) * 0x1p-53;
        const int32_t id = sample(next.logits(ctx, ids), o.sampling, u);
        if (id == tokenizer->end_of_document()) break;
        ids.push_back(id);
        text.show(tokenizer->decode(ids));
    }
    std::cout << "\n";
}

}  // namespace

void add_generate(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "generate",
        "Let a model go on with a text: a quick look, on one rank of the host, without a cache");
    auto options = std::make_shared<Options>();
    Options& o = *options;
    command->add_option("--load", o.load, "Folder of steps (the newest), a step, or a model")
        ->required();
    command->add_option("--prompt", o.prompt, "Text to go on with; -: standard input");
    CLI::Option* model = command->add_option("--tokenizer-model", o.tokenizer_model,
                                             "SentencePiece model (default: tokenizer.model beside "
                                             "the weights)");
    command->add_option("--tokenizer", o.tokenizer, "auto or bytes")
        ->check(CLI::IsMember({"auto", "bytes"}))
        ->excludes(model)
        ->capture_default_str();
    command->add_option("--max-new-tokens", o.max_new_tokens, "Most tokens to add")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command
        ->add_option("--seq-length", o.seq_length,
                     "Longest context, of which older tokens drop out (default: the positions that "
                     "the model is made for)")
        ->check(CLI::PositiveNumber);
    command->add_option("--temperature", o.sampling.temperature, "0: always the likeliest token")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--top-k", o.sampling.top_k, "Of the k likeliest tokens only; 0: of all")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command
        ->add_option("--top-p", o.sampling.top_p,
                     "Of the likeliest tokens that together have this probability")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    command->add_option("--seed", o.seed, "The same seed says the same")->capture_default_str();
    command->add_option("--threads", o.threads, "0: as many as the machine runs at once")
        ->check(CLI::NonNegativeNumber);
    command->callback([options] { generate_text(*options); });
}

}  // namespace vocabpipe::tool
