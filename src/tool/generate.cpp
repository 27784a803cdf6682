// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "src/model/next_token.hpp"
#include "src/tool/commands.hpp"
#include "src/tool/growing_text.hpp"
#include "src/tool/interrupt.hpp"
#include "src/tool/quantity.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/data/byte_tokenizer.hpp"
#include "src/train/data/sentencepiece_tokenizer.hpp"
#include "src/train/measure/process_memory.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct GenerateArguments {
    std::string load;
    std::string prompt;
    std::string tokenizer_model;
    std::string tokenizer = "auto";
    bool no_bos = false;
    int64_t max_new_tokens = 100;
    int64_t seq_length = 0;  // 0: prompt and new tokens, within the model's positions
    SamplingOptions sampling;
    uint64_t seed = 1234;
    int threads = 0;
};

/// The tokenizer that was named, else tokenizer.model beside the weights, else bytes where the
/// vocabulary is that of bytes.
std::unique_ptr<Tokenizer> find_tokenizer(const GenerateArguments& o, const std::string& folder,
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

/// One line instead of an allocation that fails, or the kernel's choice of a process to end.
void check_memory(const ModelConfig& config, const ModelPartition& partition,
                  const Schedule& schedule) {
    const StageBytes stage = step_sizes(config, partition, schedule).stages.front();
    const int64_t weights = persistent_bytes(config, partition, schedule, 0).total();
    const int64_t boundaries = 2 * config.seq_length * config.hidden_size * size_of(config.dtype);
    const int64_t needed = weights + stage.saved + stage.forward_workspace + boundaries;
    const int64_t available = available_memory();
    if (needed <= available) return;
    const auto text = [](int64_t bytes) { return bytes_text(static_cast<uint64_t>(bytes)); };
    throw OutOfMemoryError("the model needs " + text(weights) + " and a context of " +
                           std::to_string(config.seq_length) + " tokens " + text(needed - weights) +
                           ", " + text(available) +
                           " are available; use a smaller --seq-length or a smaller model");
}

/// Standard input, if it ends: of /dev/zero no memory would be left.
std::string read_prompt() {
    constexpr size_t kMostBytes = size_t{1} << 20;  // beyond the context of any model
    std::string prompt(kMostBytes + 1, '\0');
    std::cin.read(prompt.data(), static_cast<std::streamsize>(prompt.size()));
    prompt.resize(static_cast<size_t>(std::cin.gcount()));
    if (prompt.size() > kMostBytes) {
        throw UsageError("--prompt -: standard input has more than " + std::to_string(kMostBytes) +
                         " bytes; give a shorter text");
    }
    return prompt;
}

void generate_text(const GenerateArguments& o) {
    const Checkpoint checkpoint(find_checkpoint(o.load, /*weights_only=*/true));
    ModelConfig config = checkpoint.config();
    const int64_t positions = config.max_position_embeddings;
    if (o.seq_length > positions) {
        throw UsageError("--seq-length " + std::to_string(o.seq_length) + ": the model has " +
                         std::to_string(positions) + " positions; use at most as many");
    }
    const std::unique_ptr<Tokenizer> tokenizer =
        find_tokenizer(o, checkpoint.folder(), config.vocab_size);

    const std::string prompt = o.prompt == "-" ? read_prompt() : o.prompt;
    std::vector<int32_t> ids;
    // A run of this program has seen documents without it, a model from elsewhere with it.
    std::error_code ignored;
    const bool own = std::filesystem::exists(checkpoint.training_path(), ignored);
    if (!own && !o.no_bos && tokenizer->begin_of_document() >= 0) {
        ids.push_back(tokenizer->begin_of_document());
    }
    tokenizer->encode(prompt, ids);
    if (ids.empty()) ids.push_back(tokenizer->end_of_document());  // where a document begins
    for (const int32_t id : ids) {
        if (id < config.vocab_size) continue;
        throw UsageError("--tokenizer " + tokenizer->name() + ": makes token " +
                         std::to_string(id) + " of the prompt, the model's vocabulary has " +
                         std::to_string(config.vocab_size) + " rows");
    }

    // Rotary positions and buffers are made for all of it.
    const auto longest = o.max_new_tokens < positions
                             ? static_cast<int64_t>(ids.size()) + o.max_new_tokens
                             : positions;
    config.seq_length = o.seq_length > 0 ? o.seq_length : std::min(longest, positions);
    config.check();
    const int threads = o.threads > 0
                            ? o.threads
                            : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const std::unique_ptr<Device> device = make_host_device();
    Context ctx({.threads = threads, .poll = {}, .operators = &device->operators()});
    Schedule alone{.ranks = 1, .stages = 1, .microbatches = 1, .rank_of_stage = {0}};
    alone.input = alone.output = ShardMap::whole(config.vocab_size, 1, 0);
    const ModelPartition partition{
        .layers_per_stage = {config.num_layers}, .threads_per_rank = threads, .training = false};
    check_memory(config, partition, alone);
    checkpoint.verify();
    ModelRank model(config, partition, alone, 0, *device);
    checkpoint.fill(model, ctx);

    const InterruptGuard interrupt;
    NextToken next(model);
    std::mt19937_64 random(o.seed);
    GrowingText text;
    std::cout << text.next(tokenizer->decode(ids)) << std::flush;
    for (int64_t i = 0; i < o.max_new_tokens; ++i) {
        interrupt.check();
        const double u = static_cast<double>(random() >> 11) * 0x1p-53;
        const int32_t id = sample(next.logits(ctx, ids), o.sampling, u);
        if (id == tokenizer->end_of_document()) break;
        ids.push_back(id);
        std::cout << text.next(tokenizer->decode(ids)) << std::flush;
    }
    std::cout << text.last(tokenizer->decode(ids)) << "\n";
}

}  // namespace

Command generate_command() {
    const auto o = std::make_shared<GenerateArguments>();
    return {
        .name = "generate",
        .description =
            "Let a model go on with a text: a quick look, on one rank of the host, "
            "without a cache",
        .flags =
            {{.flags =
                  {{.names = "--load",
                    .value = &o->load,
                    .help = "Folder of steps (the newest), a step, or a model",
                    .required = true},
                   {.names = "--prompt",
                    .value = &o->prompt,
                    .help = "Text to go on with; -: standard input"},
                   {.names = "--tokenizer-model",
                    .value = &o->tokenizer_model,
                    .help = "SentencePiece model",
                    .unset = "tokenizer.model beside the weights"},
                   {.names = "--tokenizer",
                    .value = &o->tokenizer,
                    .help = "auto or bytes",
                    .choices = {"auto", "bytes"},
                    .excludes = {"--tokenizer-model"}},
                   {.names = "--no-bos",
                    .value = &o->no_bos,
                    .help = "Do not put the tokenizer's <s>, if it has one, before the prompt "
                            "of a model that is no saved step"},
                   {.names = "--max-new-tokens",
                    .value = &o->max_new_tokens,
                    .help = "Most tokens to add",
                    .range = at_least(1)},
                   {.names = "--seq-length",
                    .value = &o->seq_length,
                    .help = "Longest context, of which older tokens drop out",
                    .range = at_least(1),
                    .unset = "prompt and new tokens, within the positions that the model is "
                             "made for"},
                   {.names = "--temperature",
                    .value = &o->sampling.temperature,
                    .help = "0: always the likeliest token",
                    .range = at_least(0)},
                   {.names = "--top-k",
                    .value = &o->sampling.top_k,
                    .help = "Of the k likeliest tokens only; 0: of all",
                    .range = at_least(0)},
                   {.names = "--top-p",
                    .value = &o->sampling.top_p,
                    .help = "Of the likeliest tokens that together have this probability",
                    .range = between(0, 1)},
                   {.names = "--seed", .value = &o->seed, .help = "The same seed says the same"},
                   {.names = "--threads",
                    .value = &o->threads,
                    .help = "0: as many as the machine runs at once",
                    .range = at_least(0),
                    .absent = 0}}}},
        .run = [o](const GivenFlags&) { generate_text(*o); }};
}

}  // namespace vocabpipe::tool
