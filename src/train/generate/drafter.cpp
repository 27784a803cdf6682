// SPDX-License-Identifier: Apache-2.0
#include "src/train/generate/drafter.hpp"

#include "src/model/model_rank_internals.hpp"
#include "src/model/views.hpp"

#include <algorithm>
#include <memory>

namespace vocabpipe {

namespace {

constexpr int64_t kAlignment = 256;  // kernels read vectors

/// h^0 .. h^{D-1}.
std::vector<Tensor> hidden_views(Views& views, const ModelConfig& config) {
    std::vector<Tensor> hidden;
    for (int k = 0; k < config.mtp_num_layers; ++k) {
        hidden.push_back(views.take(config.seq_length, config.hidden_size, config.dtype));
    }
    return hidden;
}

int64_t hidden_bytes(const ModelConfig& config) {
    Views counted(kAlignment);
    hidden_views(counted, config);
    return counted.used();
}

}  // namespace

Drafter::Drafter(Communicator& world, Device& device, ModelRank& model,
                 const ModelPartition& partition, LogitsLayer* output, const RotaryTables& rotary,
                 const TextGeneratorOptions& options, bool last, const std::string& owner)
    : world_(world),
      model_(model),
      partition_(partition),
      output_(output),
      rotary_(rotary),
      options_(options),
      hidden_(static_cast<size_t>(options.model.mtp_num_layers)),
      logits_(static_cast<size_t>(options.model.mtp_num_layers)) {
    world.agree([&] {
        for (int k = 1; k <= options.model.mtp_num_layers; ++k) {
            const std::vector<int> layers(last ? 1 : 0, options.model.num_layers + k - 1);
            caches_.emplace_back(device, options.model, layers, options.tensor, owner);
        }
        if (!last) return;
        memory_ = device.allocate(static_cast<uint64_t>(hidden_bytes(options.model)),
                                  owner + ": what depths read");
        Views views(kAlignment);
        views.place(memory_.bytes());
        hidden_ = hidden_views(views, options.model);
    });
}

int64_t Drafter::bytes(const TextGeneratorOptions& options) {
    return options.model.mtp_num_layers * KeyValueCache::bytes(options.model, 1, options.tensor) +
           hidden_bytes(options.model);
}

std::unique_ptr<Forward> Drafter::program(int k, int64_t rows) {
    const MakeStage make = [&](int, const Mesh::Place&) -> std::unique_ptr<StageModule> {
        auto stage = ModelRankInternals::draft_stage(model_, partition_,
                                                     {.depth = k - 1,
                                                      .tokens = rows,
                                                      .threads = options_.threads_per_rank,
                                                      .cache = &cache(k),
                                                      .hidden = hidden_[static_cast<size_t>(k) - 1],
                                                      .rotary = &rotary_});
        if (std::cmp_equal(k, hidden_.size())) return stage;
        return std::make_unique<KeptStage>(std::move(stage), cache(k),
                                           hidden_[static_cast<size_t>(k)]);
    };
    return std::make_unique<Forward>(world_, model_, output_, options_, plan_draft(options_, rows),
                                     make);
}

void Drafter::run(int k, std::span<const int32_t> tokens, int64_t n) {
    const int64_t first = cache(k).tokens();
    const int64_t rows = n - first;
    const std::span<const int32_t> read =
        tokens.subspan(static_cast<size_t>(first + k), static_cast<size_t>(rows));
    if (rows > options_.model.predicted_tokens()) {  // of a prompt
        program(k, rows)->run(read);
    } else {
        std::unique_ptr<Forward>& kept = programs_[{k, rows}];
        if (!kept) kept = program(k, rows);
        kept->run(read);
    }
    cache(k).add(rows);
}

std::vector<int32_t> Drafter::draft(std::span<const int32_t> tokens, int64_t most) {
    const int64_t n = std::ssize(tokens) - 1;
    std::vector<int32_t> text(tokens.begin(), tokens.end());
    clear_logits();
    for (int k = 1; k <= std::min<int64_t>(most, std::ssize(caches_)); ++k) {
        run(k, text, n);
        LogitsShard mine;
        if (output_ != nullptr) {
            const std::span<const float> made = output_->logits();
            logits_[static_cast<size_t>(k) - 1].assign(made.begin(), made.end());
            mine = {made, output_->first_row()};
        }
        text.push_back(likeliest_tokens(world_, mine, 1).front());
    }
    return {text.begin() + std::ssize(tokens), text.end()};
}

void Drafter::keep(int64_t read) {
    for (int k = 1; k <= std::ssize(caches_); ++k) cache(k).cut(std::max<int64_t>(read - k, 0));
}

void Drafter::clear() {
    for (KeyValueCache& cache : caches_) cache.clear();
}

}  // namespace vocabpipe
