// SPDX-License-Identifier: Apache-2.0
// model_outputs FOLDER TOKENS SEQUENCES fp32|bf16 RANKS OUT [SAVE]
//
// What compare_transformers.py compares: logits, loss and gradients of a model in a Hugging Face
// folder. TOKENS: int32, SEQUENCES rows that are one longer than the sequence. OUT: safetensors
// with "loss" (1), "depth_losses" (D, weighted as in the step's loss), "logits" (SEQUENCES *
// length, V) and "grad/NAME" of every tensor of the files, as this program holds it: linear weights
// [out, in]. SAVE: a folder for one step, saved by the ranks.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/model/model_rank_internals.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/save_checkpoint.hpp"
#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/text_generator.hpp"
#include "vocabpipe/trained_rank.hpp"

namespace {

using namespace vocabpipe;
using testing::Batch;

struct Arguments {
    std::string folder, tokens, out, save;
    int64_t sequences = 1;
    DType dtype = DType::fp32;
    int ranks = 1;
};

/// One sequence per microbatch.
Batch read_batch(const Arguments& a, const ModelConfig& config) {
    const int64_t seq_length = config.seq_length;
    const std::string text = InputFile(a.tokens).text();
    const auto row = static_cast<size_t>(seq_length + 1);
    std::vector<int32_t> all(static_cast<size_t>(a.sequences) * row);
    std::memcpy(all.data(), text.data(), std::min(text.size(), all.size() * sizeof(int32_t)));
    Batch batch{.sequences = 1,
                .seq_length = seq_length,
                .tokens = {},
                .labels = {},
                .loss_gradient = {},
                .counted_tokens = a.sequences * seq_length};
    for (auto begin = all.begin(); begin != all.end(); begin += seq_length + 1) {
        batch.tokens.emplace_back(begin, begin + seq_length);
        batch.labels.emplace_back(begin + 1, begin + seq_length + 1);
        batch.loss_gradient.emplace_back(static_cast<size_t>(seq_length),
                                         1.0F / static_cast<float>(batch.counted_tokens));
    }
    testing::add_later_labels(config, batch);
    return batch;
}

/// Sums, because the two sides of a tied weight are held apart.
struct Results {
    double loss = 0;
    std::vector<float> depth_losses;                      ///< [depth]
    std::map<std::string, std::vector<float>> gradients;  ///< by name in files
    std::mutex mutex;

    void add(ModelRank& model) {
        const auto stored = model_tensors(model.config());
        const std::lock_guard lock(mutex);
        for (size_t i = 0; i < model.parameters().size(); ++i) {
            const Parameter& p = model.parameters()[i];
            if (p.correction_bias) continue;  // has none
            for (const ModelTensor& t :
                 stored[static_cast<size_t>(ModelRankInternals::store(model).ids()[i])]) {
                for (const HeldRows& held : held_rows(p, t)) {
                    const Tensor rows = held.of(p.gradient_of_layer());
                    std::vector<float>& whole = gradients[t.name];
                    whole.resize(static_cast<size_t>(t.held_shape[0] * rows.cols));
                    for (int64_t k = 0; k < rows.size(); ++k) {
                        whole[static_cast<size_t>(held.rows.first * rows.cols + k)] +=
                            rows.as<float>()[k];
                    }
                }
            }
        }
        if (model.output() != nullptr && !model.output()->losses().empty()) {
            double sum = 0;
            for (const double microbatch : model.output()->losses()) sum += microbatch;
            loss = sum;  // the same on every rank with rows of the output layer
            const std::span<const double> of_depths = model.output()->depth_losses();
            const size_t microbatches = model.output()->losses().size();
            depth_losses.assign(of_depths.size() / microbatches, 0);
            for (size_t i = 0; i < of_depths.size(); ++i) {
                depth_losses[i / microbatches] += static_cast<float>(of_depths[i]);
            }
        }
    }
};

void run_ranks(const Arguments& a, const Checkpoint& checkpoint, const ModelConfig& config,
               const Batch& batch, Results& results) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = a.ranks,
                               .microbatches = static_cast<int>(a.sequences),
                               .vocab_mode = a.ranks > 1 ? VocabMode::one_barrier : VocabMode::none,
                               .vocab_size = config.vocab_size});
    const ModelPartition partition = testing::even_partition(config, schedule, 1);
    const StepPlan plan =
        plan_step(config, partition, schedule,
                  TableCosts::uniform(schedule.ranks, schedule.stages, 1000, 2000, 500));
    World::threads(a.ranks).run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(communicator, *device, plan, {.initialise = false});
        ModelRank& model = rank.model();
        checkpoint.fill(model, rank.context());
        rank.run(batch.microbatches());
        results.add(model);
        if (a.save.empty()) return;
        std::optional<SaveFolder> folder;
        communicator.agree([&] {
            if (communicator.rank() == 0) folder.emplace(a.save, 0, "");
        });
        CheckpointSaver saver(communicator, model, folder ? &*folder : nullptr, {.root = a.save});
        saver.begin({.step = 1,
                     .seq_length = config.seq_length,
                     .dtype = config.dtype == DType::bf16 ? "bf16" : "fp32"});
        (void)saver.finish();
    });
}

/// The logits of all positions, as they are generated: the first token, then one after the other
/// behind the keys and values of those before.
std::vector<float> all_logits(const Checkpoint& checkpoint, const ModelConfig& config,
                              const Batch& batch, int ranks) {
    std::vector<float> all;
    World::threads(ranks).run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        TextGenerator generator(communicator, *device, {.model = config, .ranks = ranks});
        checkpoint.fill(generator.model(), generator.context());
        for (const std::vector<int32_t>& tokens : batch.tokens) {
            generator.start_over();
            for (size_t n = 1; n <= tokens.size(); ++n) {
                generator.read(std::span(tokens).first(n));
                const auto shards =
                    communicator.all_gather(std::as_bytes(generator.logits().logits));
                if (communicator.rank() != 0) continue;
                for (const std::vector<std::byte>& shard : shards) {
                    const size_t begin = all.size();
                    all.resize(begin + shard.size() / sizeof(float));
                    if (!shard.empty()) std::memcpy(&all[begin], shard.data(), shard.size());
                }
            }
        }
    });
    return all;
}

void write(const std::string& path, const std::map<std::string, std::vector<float>>& tensors) {
    std::vector<StoredTensor> stored;
    for (const auto& [name, values] : tensors) {
        stored.push_back({.name = name, .shape = {static_cast<int64_t>(values.size())}});
    }
    const SafetensorsPlan plan(std::move(stored), {});
    SharedOutputFile file = SharedOutputFile::create(path, plan.file_bytes());
    file.write_at(0, std::as_bytes(std::span(plan.header())));
    for (const auto& [name, values] : tensors) {
        file.write_at(plan.at(name).begin, std::as_bytes(std::span(values)));
    }
}

void run(const Arguments& a) {
    const Checkpoint checkpoint(find_checkpoint(a.folder, true));
    checkpoint.verify();
    ModelConfig config = checkpoint.config();
    config.dtype = a.dtype;
    const auto token_bytes = static_cast<int64_t>(InputFile(a.tokens).size());
    config.seq_length = token_bytes / (a.sequences * 4) - 1;
    config.check();
    const Batch batch = read_batch(a, config);
    Results results;
    run_ranks(a, checkpoint, config, batch, results);
    std::map<std::string, std::vector<float>> out;
    out["loss"] = {static_cast<float>(results.loss)};
    if (!results.depth_losses.empty()) out["depth_losses"] = results.depth_losses;
    out["logits"] = all_logits(checkpoint, config, batch, a.ranks);
    for (auto& [name, values] : results.gradients) out["grad/" + name] = std::move(values);
    write(a.out, out);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7 || argc > 8) {
        std::fprintf(stderr, "model_outputs FOLDER TOKENS SEQUENCES fp32|bf16 RANKS OUT [SAVE]\n");
        return 2;
    }
    try {
        run({.folder = argv[1],
             .tokens = argv[2],
             .out = argv[6],
             .save = argc > 7 ? argv[7] : "",
             .sequences = std::atoll(argv[3]),
             .dtype = std::string(argv[4]) == "bf16" ? DType::bf16 : DType::fp32,
             .ranks = std::atoi(argv[5])});
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "model_outputs: error: %s\n", error.what());
        return 1;
    }
}
