// SPDX-License-Identifier: Apache-2.0
// vocabpipe generate: continues a text with a saved model. Rank 0 reads the prompt and prints; all
// ranks draw the same tokens.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "src/step/rank_placement.hpp"
#include "src/step/ranks_beside.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/process_memory.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/launch/devices.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "src/tool/model/config_notes.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/growing_text.hpp"
#include "src/tool/support/quantity.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "src/train/tokenizer/open_tokenizer.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/text_generator.hpp"

namespace vocabpipe::tool {

namespace {

struct GenerateArguments {
    std::string load;
    std::string adapter;
    std::string prompt;
    std::string prompt_ids;  // empty: prompt is given
    bool print_ids = false;
    std::string tokenizer_model;
    std::string tokenizer = "auto";
    bool no_bos = false;
    int64_t max_new_tokens = 100;
    bool draft = false;      // --draft-with-mtp
    int64_t seq_length = 0;  // 0: prompt and new tokens, within the model's positions
    SamplingOptions sampling;
    uint64_t seed = 1234;
    Launch launch{.transport = started_by_mpirun() ? "mpi" : "threads"};
    int tensor = 1;         // --tensor-model-parallel-size
    int expert = 1;         // --expert-model-parallel-size
    int expert_tensor = 1;  // --expert-tensor-parallel-size
    std::string device = "host";
    int threads_per_rank = 0;  // 0: the rank's share of the cores
};

/// The given tokenizer, else the one next to the weights, else bytes if the vocabulary has their
/// size; null if there is none and only ids are read and printed.
std::unique_ptr<Tokenizer> find_tokenizer(const GenerateArguments& o, const std::string& folder,
                                          int64_t vocab_size) {
    const auto open = [&](const std::string& path) {
        auto found = open_tokenizer(path);
        if (found->vocab_size() > vocab_size) {
            throw UsageError("--tokenizer-model " + path + ": has " +
                             std::to_string(found->vocab_size()) + " ids, the model's vocabulary " +
                             std::to_string(vocab_size) +
                             " rows; give the one that the model was trained with");
        }
        return found;
    };
    if (!o.tokenizer_model.empty()) return open(o.tokenizer_model);
    const std::string beside = tokenizer_file_in(folder);
    if (o.tokenizer != "bytes" && !beside.empty()) return open(beside);
    if (o.tokenizer == "bytes" || vocab_size == ByteTokenizer::kVocabSize) {
        return std::make_unique<ByteTokenizer>();
    }
    if (!o.prompt_ids.empty() && o.print_ids) return nullptr;
    throw UsageError(folder +
                     ": has no tokenizer.json and no tokenizer.model; give --tokenizer-model FILE, "
                     "--tokenizer bytes, or --prompt-ids and --print-ids");
}

/// "1 2 3", also with commas.
std::vector<int32_t> parse_ids(const std::string& text) {
    std::vector<int32_t> ids;
    for (size_t at = text.find_first_not_of(" ,"); at != std::string::npos;) {
        const size_t end = std::min(text.find_first_of(" ,", at), text.size());
        const auto id = parse_number<int32_t>(std::string_view(text).substr(at, end - at));
        if (!id || *id < 0) {
            throw UsageError("--prompt-ids: '" + text.substr(at, end - at) +
                             "' is no token id; give numbers, such as \"1 2 3\"");
        }
        ids.push_back(*id);
        at = text.find_first_not_of(" ,", end);
    }
    if (ids.empty()) throw UsageError("--prompt-ids: has no id; give numbers, such as \"1 2 3\"");
    return ids;
}

std::string size_text(int64_t bytes) {
    return bytes_text(static_cast<uint64_t>(bytes));
}

/// Checks that all ranks of this host, or GPU, fit into its memory: an error message instead of a
/// failed allocation or a killed process.
void check_memory(const TextGeneratorOptions& options, const std::vector<RankPlacement>& placements,
                  int rank) {
    const RankPlacement& mine = placements[static_cast<size_t>(rank)];
    const std::vector<int> ranks = ranks_beside(placements, rank);
    TextGeneratorBytes needed;
    for (const int other : ranks) {
        const TextGeneratorBytes of = TextGenerator::bytes(options, other);
        needed.weights += of.weights;
        needed.context += of.context;
    }
    const int64_t available =
        mine.memory ? static_cast<int64_t>(mine.memory->free) : available_memory();
    if (needed.total() <= available) return;
    throw OutOfMemoryError(
        "the model needs " + size_text(needed.weights) + " and a context of " +
        std::to_string(options.model.seq_length) + " tokens " + size_text(needed.context) +
        (ranks.size() > 1 ? " on " + std::to_string(ranks.size()) + " ranks" : "") + ", " +
        size_text(available) +
        " are available; use a smaller --seq-length, more hosts, or a smaller model");
}

/// Standard input, up to a limit: /dev/zero would fill the memory.
std::string read_prompt() {
    constexpr size_t kMostBytes = size_t{1} << 20;  // more than the context of any model
    std::string prompt(kMostBytes + 1, '\0');
    std::cin.read(prompt.data(), static_cast<std::streamsize>(prompt.size()));
    prompt.resize(static_cast<size_t>(std::cin.gcount()));
    if (prompt.size() > kMostBytes) {
        throw UsageError("--prompt -: standard input has more than " + std::to_string(kMostBytes) +
                         " bytes; give a shorter text");
    }
    return prompt;
}

/// The text on rank 0; only that rank reads the prompt and has a tokenizer.
class Text {
public:
    Text(const GenerateArguments& o, const Checkpoint& checkpoint)
        : tokenizer_(find_tokenizer(o, checkpoint.folder(), checkpoint.config().vocab_size)),
          print_ids_(o.print_ids),
          text_([this](std::span<const int32_t> ids) { return tokenizer_->decode(ids); }) {
        const int64_t vocab_size = checkpoint.config().vocab_size;
        if (o.prompt_ids.empty()) {
            encode_prompt(o, checkpoint);
        } else {
            prompt_ = parse_ids(o.prompt_ids);
        }
        for (const int32_t id : prompt_) {
            if (id < vocab_size) continue;
            throw UsageError((o.prompt_ids.empty() ? "--tokenizer " + tokenizer_->name()
                                                   : std::string("--prompt-ids")) +
                             ": the prompt has token " + std::to_string(id) +
                             ", the model's vocabulary has " + std::to_string(vocab_size) +
                             " rows; use the tokenizer that the model was trained with");
        }
    }

    [[nodiscard]] const std::vector<int32_t>& prompt() const { return prompt_; }
    /// -1: not known.
    [[nodiscard]] int32_t end_of_document() const {
        return tokenizer_ ? tokenizer_->end_of_document() : -1;
    }
    void print(std::span<const int32_t> ids) {
        if (print_ids_) {
            for (; ids_printed_ < ids.size(); ++ids_printed_) {
                std::cout << (ids_printed_ > 0 ? " " : "") << ids[ids_printed_];
            }
        } else {
            std::cout << text_.next(ids);
        }
        std::cout << std::flush;
    }
    void print_end(std::span<const int32_t> ids) {
        if (!print_ids_) std::cout << text_.last(ids);
        std::cout << "\n";
    }

private:
    void encode_prompt(const GenerateArguments& o, const Checkpoint& checkpoint) {
        // Only models from elsewhere were trained with begin_of_document().
        std::error_code ignored;
        const bool own = std::filesystem::exists(checkpoint.training_path(), ignored);
        if (!own && !o.no_bos && tokenizer_->begin_of_document() >= 0) {
            prompt_.push_back(tokenizer_->begin_of_document());
        }
        tokenizer_->encode(o.prompt == "-" ? read_prompt() : o.prompt, prompt_);
        if (prompt_.empty()) prompt_.push_back(tokenizer_->end_of_document());
    }

    std::unique_ptr<Tokenizer> tokenizer_;
    bool print_ids_;
    size_t ids_printed_ = 0;
    GrowingText text_;
    std::vector<int32_t> prompt_;
};

/// Rank 0's ids, on every rank.
std::vector<int32_t> from_first(Communicator& world, const std::vector<int32_t>& mine) {
    const auto all = world.all_gather(std::as_bytes(std::span(mine)));
    std::vector<int32_t> first(all.front().size() / sizeof(int32_t));
    std::memcpy(first.data(), all.front().data(), all.front().size());
    return first;
}

/// Whether a signal told any rank to end.
bool told_to_end(Communicator& world) {
    const int signal = ending_signal();
    const auto all = world.all_gather(std::as_bytes(std::span(&signal, 1)));
    return std::ranges::any_of(all, [](const std::vector<std::byte>& one) {
        return std::ranges::any_of(one, [](std::byte b) { return b != std::byte{0}; });
    });
}

/// Ranks that share the experts of a layer.
int expert_ranks(const GenerateArguments& o) {
    const int64_t most = std::numeric_limits<int>::max();
    return static_cast<int>(std::min(int64_t{o.expert} * o.expert_tensor, most));
}

/// Ranks per place in the pipeline.
int ranks_of_stage(const GenerateArguments& o) {
    return std::max(o.tensor, expert_ranks(o));
}

/// UsageError unless `ranks` divides into groups that share a stage or its experts.
void check_teams(const GenerateArguments& o, int ranks) {
    for (const auto& [flag_name, kind, size] :
         {std::tuple("--tensor-model-parallel-size ", "tensor", o.tensor),
          {"--expert-model-parallel-size ", "expert", o.expert},
          {"--expert-tensor-parallel-size ", "expert", o.expert_tensor}}) {
        if (size == 1) continue;
        const std::string flag = flag_name + std::to_string(size);
        if (o.device != "host") {
            throw UsageError(flag + ": " + kind +
                             " ranks run on the host only; use --device host, or 1");
        }
        if (ranks % size != 0) {
            throw UsageError(flag + ": must divide the number of ranks, " + std::to_string(ranks));
        }
    }
    if (o.expert_tensor > 1 && ranks % expert_ranks(o) != 0) {
        throw UsageError("--expert-tensor-parallel-size " + std::to_string(o.expert_tensor) +
                         ": times --expert-model-parallel-size " + std::to_string(o.expert) +
                         " must divide the number of ranks, " + std::to_string(ranks));
    }
}

/// UsageError for drafts where the likeliest token is not always taken.
void check_drafts(const GenerateArguments& o) {
    if (!o.draft || o.sampling.temperature == 0 || o.sampling.top_k == 1) return;
    throw UsageError("--draft-with-mtp: with --temperature " +
                     format("%g", o.sampling.temperature) +
                     " tokens are sampled, but drafts are compared with the likeliest ones; use "
                     "--temperature 0, or leave out --draft-with-mtp");
}

/// The tokens that follow `ids`: one, or with drafts up to `most`.
std::vector<int32_t> next_tokens(TextGenerator& generator, const GenerateArguments& o,
                                 std::span<const int32_t> ids, int64_t most,
                                 std::mt19937_64& random) {
    if (o.draft) return generator.next_drafted(ids, most);
    generator.read(ids);
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    return {generator.next(o.sampling, u)};
}

void print_drafts(const DraftCounts& counts) {
    const auto of = [](int64_t part, int64_t whole) {
        return static_cast<double>(part) / static_cast<double>(whole);
    };
    std::string line = "vocabpipe: drafted " + std::to_string(counts.drafted) +
                       " tokens, accepted " + std::to_string(counts.accepted);
    if (counts.drafted > 0) line += format(" (%.1f %%)", 100 * of(counts.accepted, counts.drafted));
    if (counts.forwards > 0) {
        line += format(", %.2f tokens a forward", of(counts.tokens, counts.forwards));
    }
    std::cerr << line << "\n";
}

void generate_on(Communicator& world, const GenerateArguments& o) {
    std::optional<Checkpoint> checkpoint;
    std::optional<Text> text;  // of rank 0
    world.agree([&] {
        check_teams(o, world.size());
        check_drafts(o);
        CheckpointSource source = find_checkpoint(o.load, /*weights_only=*/true);
        source.adapter = o.adapter;
        checkpoint.emplace(source);
        check_positions(checkpoint->config(), o.seq_length);
        if (world.rank() == 0) {
            print_config_notes(checkpoint->config_path());
            text.emplace(o, *checkpoint);
        }
    });
    std::vector<int32_t> ids = from_first(world, text ? text->prompt() : std::vector<int32_t>());
    const int32_t end = from_first(world, {text ? text->end_of_document() : 0}).front();

    std::vector<RankPlacement> placements = find_placements(world);
    const RankPlacement& place = placements[static_cast<size_t>(world.rank())];
    std::unique_ptr<Device> device;
    TextGeneratorOptions options{.model = checkpoint->config(),
                                 .ranks = world.size() / ranks_of_stage(o),
                                 .tensor = o.tensor,
                                 .expert = expert_ranks(o),
                                 .expert_tensor = o.expert_tensor,
                                 .draft = o.draft};
    world.agree([&] {
        const auto make = device_factory(o.device, o.launch.ranks_are_threads());
        device = make ? make(place) : make_host_device();
    });
    describe_devices(world, *device, placements);
    world.agree([&] {
        const int64_t positions = options.model.max_position_embeddings;
        const int64_t longest =
            o.max_new_tokens < positions ? std::ssize(ids) + o.max_new_tokens : positions;
        options.model.seq_length = o.seq_length > 0 ? o.seq_length : std::min(longest, positions);
        options.model.check();
        options.threads_per_rank = o.threads_per_rank > 0 ? o.threads_per_rank : place.threads();
        options.operators = &device->operators();
        check_memory(options, placements, world.rank());
    });
    checkpoint->verify(world);
    TextGenerator generator(world, *device, options);
    world.agree([&] { checkpoint->fill(generator.model(), generator.context()); });

    std::mt19937_64 random(o.seed);  // the same numbers on every rank
    if (text) text->print(ids);
    bool ended = false;
    for (int64_t left = o.max_new_tokens; left > 0 && !ended && !told_to_end(world);) {
        for (const int32_t id : next_tokens(generator, o, ids, left, random)) {
            ended = ended || id == end;
            if (ended) break;
            ids.push_back(id);
            --left;
        }
        if (text) text->print(ids);
    }
    if (text) text->print_end(ids);
    if (text && o.draft) print_drafts(generator.draft_counts());
}

void generate_text(GenerateArguments& o) {
    if (o.launch.ranks_are_threads() && !o.launch.ranks) o.launch.ranks = ranks_of_stage(o);
    check_launch(o.launch);
    install_run_signals(o.launch.exit_signal);
    const int code =
        run_ranks("vocabpipe", o.launch, [&](Communicator& world) { generate_on(world, o); });
    if (code != 0) throw Reported{code};
    if (ending_signal() != 0) throw Reported{128 + ending_signal()};
}

}  // namespace

Command generate_command() {
    const auto o = std::make_shared<GenerateArguments>();
    return comparing_flags(
        {.name = "generate",
         .description = "Continue a text with a saved model, as it is generated\n"
                        "  vocabpipe generate --load FOLDER --prompt TEXT\n"
                        "  mpirun -np 4 vocabpipe generate --load FOLDER --prompt TEXT \\\n"
                        "      --tensor-model-parallel-size 2",
         .flags =
             {{.flags = {{.names = "--load",
                          .value = &o->load,
                          .help = "Folder of steps (the newest is used), a step, or a model",
                          .required = true},
                         {.names = "--load-adapter",
                          .value = &o->adapter,
                          .help = "Generate with the adapters that PEFT saved in a folder",
                          .unit = "FOLDER"},
                         {.names = "--prompt",
                          .value = &o->prompt,
                          .help = "Text to continue; - reads standard input"},
                         {.names = "--prompt-ids",
                          .value = &o->prompt_ids,
                          .help = "Token ids to continue in place of a text, such as \"1 2 3\"",
                          .excludes = {"--prompt"}},
                         {.names = "--print-ids",
                          .value = &o->print_ids,
                          .help = "Print token ids in place of their text"},
                         {.names = "--tokenizer-model",
                          .value = &o->tokenizer_model,
                          .help = "Tokenizer: a tokenizer.json of Hugging Face, a .model of "
                                  "SentencePiece, a .tiktoken, or a folder that has one",
                          .unset = "the one beside the weights"},
                         {.names = "--tokenizer",
                          .value = &o->tokenizer,
                          .help = "auto or bytes",
                          .choices = {"auto", "bytes"},
                          .excludes = {"--tokenizer-model"}},
                         {.names = "--no-bos",
                          .value = &o->no_bos,
                          .help = "Do not put the tokenizer's <s> before the prompt. A model that "
                                  "this library trained never gets it"},
                         {.names = "--max-new-tokens",
                          .value = &o->max_new_tokens,
                          .help = "Maximum number of tokens to add",
                          .range = at_least(1)},
                         {.names = "--draft-with-mtp",
                          .value = &o->draft,
                          .help = "Draft tokens with the depths of a model that was trained with "
                                  "--mtp-num-layers, and keep those that are also the model's "
                                  "likeliest: the same text in fewer forward passes. Needs "
                                  "--temperature 0"},
                         {.names = "--seq-length",
                          .value = &o->seq_length,
                          .help = "Maximum length of the context. When it is full, its older half "
                                  "is dropped",
                          .range = at_least(1),
                          .unset = "prompt and new tokens, at most the model's positions"}}},
              {.title = "Sampling",
               .flags = {{.names = "--temperature",
                          .value = &o->sampling.temperature,
                          .help = "Divides the logits; 0 always takes the likeliest token",
                          .range = at_least(0)},
                         {.names = "--top-k",
                          .value = &o->sampling.top_k,
                          .help = "Sample from the k likeliest tokens; 0: from all tokens",
                          .range = at_least(0)},
                         {.names = "--top-p",
                          .value = &o->sampling.top_p,
                          .help = "Sample from the likeliest tokens that together have this "
                                  "probability",
                          .range = between(0, 1)},
                         {.names = "--seed",
                          .value = &o->seed,
                          .help = "Seed of the sampling. The text is the same for every number of "
                                  "ranks"}}},
              launch_flags(o->launch),
              {.title = "Devices",
               .flags = {{.names = "--tensor-model-parallel-size",
                          .value = &o->tensor,
                          .help = "Ranks that share each stage of the pipeline, which the other "
                                  "ranks make longer. Any number, whatever the model was trained "
                                  "with",
                          .unit = "RANKS",
                          .range = at_least(1)},
                         {.names = "--expert-model-parallel-size",
                          .value = &o->expert,
                          .help = "Ranks that share the experts of each layer: the tensor ranks of "
                                  "a stage, some of them, or several such groups. Any number, "
                                  "whatever the model was trained with",
                          .unit = "RANKS",
                          .range = at_least(1)},
                         {.names = "--expert-tensor-parallel-size",
                          .value = &o->expert_tensor,
                          .help = "Ranks that share each expert, times the number above: each has "
                                  "some of its columns. Any number, whatever the model was trained "
                                  "with",
                          .unit = "RANKS",
                          .range = at_least(1)},
                         {.names = "--device",
                          .value = &o->device,
                          .help = "host, or cuda: one GPU per rank; with --transport threads ranks "
                                  "may share one",
                          .choices = {"host", "cuda"}},
                         {.names = "--threads-per-rank",
                          .value = &o->threads_per_rank,
                          .help = "OpenMP threads per rank",
                          .range = between(1, 1024),
                          .unset = "the rank's share of the cores",
                          .absent = 0}}}},
         .run = [o](const GivenFlags&) { generate_text(*o); }},
        o->launch);
}

}  // namespace vocabpipe::tool
