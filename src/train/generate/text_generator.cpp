// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/text_generator.hpp"

#include "src/model/draft_stage.hpp"
#include "src/model/key_value_cache.hpp"
#include "src/model/logits_layer.hpp"
#include "src/model/model_rank_internals.hpp"
#include "src/model/parameters.hpp"
#include "src/train/generate/drafter.hpp"
#include "src/train/generate/forward.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

std::vector<int> layers_of(const StepPlan& plan, int world_rank) {
    const int rank = plan.mesh().pipeline_rank(world_rank);
    std::vector<int> layers;
    int next = 0;
    for (size_t s = 0; s < plan.partition.layers_per_stage.size(); ++s) {
        for (int i = 0; i < plan.partition.layers_per_stage[s]; ++i, ++next) {
            if (plan.schedule.rank_of_stage[s] == rank) layers.push_back(next);
        }
    }
    return layers;
}

/// Model of a ModelRank that only holds weights: its buffers for tokens are never used.
ModelConfig held_model(const TextGeneratorOptions& options) {
    ModelConfig config = filled_up(options, 1);
    if (!options.draft) config.mtp_num_layers = 0;
    return config;
}

/// Leaves the parameters that the model has without its depths.
void erase_depths(const ModelConfig& config, std::vector<Parameter>& parameters) {
    const ModelParameters model = model_parameters(config);
    for (const ModelParameters::Depth& depth : model.depths) {
        for (int id = depth.projection.first; id < depth.norm.end; ++id) {
            const std::string& name = model.all[static_cast<size_t>(id)].name;
            std::erase_if(parameters, [&](const Parameter& p) { return p.name == name; });
        }
    }
}

std::string name_of(int rank) {
    return "rank " + std::to_string(rank);
}

}  // namespace

class TextGenerator::Implementation {
public:
    Implementation(Communicator& world, Device& device, const TextGeneratorOptions& options)
        : world_(world),
          options_(options),
          plan_(plan_forward(options, 1)),
          context_(device.context(options.threads_per_rank, [] {})) {
        world.agree([&] {
            model_.emplace(held_model(options), plan_.partition, plan_.schedule, world.rank(),
                           device);
            rotary_.emplace(device, options.model, ContextCut(options.model.seq_length),
                            name_of(world.rank()));
            cache_.emplace(device, options.model, layers_of(plan_, world.rank()), options.tensor,
                           name_of(world.rank()));
            if (model_->output() != nullptr) {
                output_.emplace(device, model_->output()->parameters().front(),
                                options.model.logit_softcap, options.model.predicted_tokens());
            }
        });
        if (options.draft) {
            drafter_.emplace(world, device, *model_, plan_.partition, output(), *rotary_, options,
                             has_last_stage(), name_of(world.rank()));
        }
        few_tokens_[1] = forward(1);
    }

    [[nodiscard]] ModelRank& model() { return *model_; }
    [[nodiscard]] Context& context() { return context_; }

    void read(std::span<const int32_t> tokens) {
        drop_if_full(tokens);
        read_unseen(unseen(tokens));
    }

    std::vector<int32_t> next_drafted(std::span<const int32_t> tokens, int64_t most) {
        if (!drafter_) throw UsageError("next_drafted: set TextGeneratorOptions::draft");
        if (std::ssize(tokens) <= dropped_ + cache_->tokens()) {
            throw UsageError("next_drafted: the text has no new token; add those of the last call");
        }
        drop_if_full(tokens);
        drafter_->clear_logits();
        std::vector<int32_t> made = cache_->tokens() == 0 ? likeliest_after(unseen(tokens))
                                                          : draft_and_verify(tokens, most);
        ++counts_.forwards;
        counts_.tokens += std::ssize(made);
        return made;
    }
    [[nodiscard]] const DraftCounts& counts() const { return counts_; }
    [[nodiscard]] LogitsShard draft_logits(int k) const {
        if (!output_ || !drafter_) return {};
        return {drafter_->logits()[static_cast<size_t>(k) - 1], output_->first_row()};
    }

    [[nodiscard]] LogitsShard logits() {
        if (!output_ || plan_.mesh().replica(world_.rank()) > 0) return {};
        return {of_token(all_logits(), last_of_text_), output_->first_row()};
    }
    [[nodiscard]] Communicator& world() { return world_; }

    void start_over() {
        clear();
        dropped_ = 0;
    }

private:
    [[nodiscard]] LogitsLayer* output() { return output_ ? &*output_ : nullptr; }
    [[nodiscard]] bool has_last_stage() const {
        return plan_.schedule.rank_of_stage.back() == plan_.mesh().pipeline_rank(world_.rank());
    }

    /// A forward of this many tokens. With depths its last stage keeps its output for them.
    [[nodiscard]] std::unique_ptr<Forward> forward(int64_t tokens) {
        const MakeStage make = [&](int stage,
                                   const Mesh::Place& place) -> std::unique_ptr<StageModule> {
            auto made = ModelRankInternals::forward_stage(*model_, plan_.partition, place, stage,
                                                          tokens, *cache_, *rotary_);
            if (!drafter_ || stage + 1 < plan_.schedule.stages) return made;
            return std::make_unique<KeptStage>(std::move(made), *cache_, drafter_->model_output());
        };
        return std::make_unique<Forward>(world_, *model_, output(), options_,
                                         plan_forward(options_, tokens), make);
    }

    void clear() {
        cache_->clear();
        if (drafter_) drafter_->clear();
    }
    /// Makes room for `tokens`.
    void drop_if_full(std::span<const int32_t> tokens) {
        if (std::ssize(tokens) - dropped_ <= cache_->positions()) return;
        clear();
        dropped_ = std::ssize(tokens) - std::max<int64_t>(cache_->positions() / 2, 1);
    }
    /// Those of `tokens` that follow the ones in the cache.
    [[nodiscard]] std::span<const int32_t> unseen(std::span<const int32_t> tokens) const {
        return tokens.subspan(static_cast<size_t>(dropped_ + cache_->tokens()));
    }
    void read_unseen(std::span<const int32_t> tokens) {
        last_of_text_ = 0;
        if (cache_->tokens() == 0 && tokens.size() > 1) {
            forward(std::ssize(tokens))->run(tokens);
            cache_->add(std::ssize(tokens));
            return;
        }
        for (; !tokens.empty(); tokens = tokens.subspan(1)) {
            few_tokens_[1]->run(tokens.first(1));
            cache_->add(1);
        }
    }

    std::vector<int32_t> likeliest_after(std::span<const int32_t> unseen) {
        read_unseen(unseen);
        return likeliest_tokens(world_, {all_logits(), first_row()}, 1);
    }
    /// The tokens that the model predicts after the last of `tokens` and after each of its drafts,
    /// as far as these are right.
    std::vector<int32_t> draft_and_verify(std::span<const int32_t> tokens, int64_t most) {
        const std::span<const int32_t> new_tokens = unseen(tokens);
        read_unseen(new_tokens.first(new_tokens.size() - 1));
        const auto context = tokens.subspan(static_cast<size_t>(dropped_));
        const int64_t room = cache_->positions() - std::ssize(context);
        std::vector<int32_t> together = {context.back()};
        const std::vector<int32_t> drafts =
            drafter_->draft(context, std::max<int64_t>(std::min(most - 1, room), 0));
        together.insert(together.end(), drafts.begin(), drafts.end());

        const auto count = std::ssize(together);
        std::unique_ptr<Forward>& program = few_tokens_[count];
        if (!program) program = forward(count);
        program->run(together, count);
        std::vector<int32_t> predicted =
            likeliest_tokens(world_, {all_logits(), first_row()}, count);
        const auto accepted = std::ranges::mismatch(drafts, predicted).in1 - drafts.begin();
        predicted.resize(static_cast<size_t>(accepted) + 1);
        cache_->add(accepted + 1);
        drafter_->keep(cache_->tokens());
        last_of_text_ = accepted;
        counts_.drafted += std::ssize(drafts);
        counts_.accepted += accepted;
        return predicted;
    }

    /// Logits of the tokens of the last forward that were scored.
    [[nodiscard]] std::span<const float> all_logits() {
        return output_ ? output_->logits() : std::span<const float>();
    }
    [[nodiscard]] std::span<const float> of_token(std::span<const float> logits,
                                                  int64_t token) const {
        return logits.subspan(static_cast<size_t>(token * output_->rows()),
                              static_cast<size_t>(output_->rows()));
    }
    [[nodiscard]] int64_t first_row() const { return output_ ? output_->first_row() : 0; }

    Communicator& world_;
    TextGeneratorOptions options_;
    StepPlan plan_;
    Context context_;
    std::optional<ModelRank> model_;
    std::optional<RotaryTables> rotary_;
    std::optional<KeyValueCache> cache_;
    std::optional<LogitsLayer> output_;  ///< none without rows of the vocabulary
    std::optional<Drafter> drafter_;     ///< with TextGeneratorOptions::draft
    std::map<int64_t, std::unique_ptr<Forward>> few_tokens_;  ///< by their number
    int64_t dropped_ = 0;       ///< of the text, no longer in the context
    int64_t last_of_text_ = 0;  ///< of the tokens that were scored
    DraftCounts counts_;
};

TextGenerator::TextGenerator(Communicator& world, Device& device,
                             const TextGeneratorOptions& options)
    : implementation_(std::make_unique<Implementation>(world, device, options)) {}
TextGenerator::~TextGenerator() = default;

TextGeneratorBytes TextGenerator::bytes(const TextGeneratorOptions& options, int rank) {
    const StepPlan plan = plan_forward(options, options.model.seq_length);
    const auto layers = std::ssize(layers_of(plan, rank));
    const PersistentBytes held =
        persistent_bytes(held_model(options), plan.partition, plan.schedule, rank);
    const auto arena_of = [&](const StepPlan& of) {
        return static_cast<int64_t>(of.lowered.of(rank).arena_bytes);
    };
    int64_t kept = KeyValueCache::bytes(options.model, layers, options.tensor);
    int64_t arena = arena_of(plan);
    if (options.draft) {  // depths read a prompt after the model has read it
        const bool last = plan.schedule.rank_of_stage.back() == plan.mesh().pipeline_rank(rank);
        if (last) kept += Drafter::bytes(options);
        arena = std::max(arena, arena_of(plan_draft(options, options.model.seq_length)));
    }
    return {.weights = held.total() + RotaryTables::bytes(options.model), .context = kept + arena};
}

ModelRank& TextGenerator::model() {
    return implementation_->model();
}
Context& TextGenerator::context() {
    return implementation_->context();
}
void TextGenerator::read(std::span<const int32_t> tokens) {
    implementation_->read(tokens);
}
void TextGenerator::copy_weights(ModelRank& from) {
    const std::span<Parameter> mine = model().parameters();
    const auto same = [](const Parameter& a, const Parameter& b) {
        return a.name == b.name && a.first_row == b.first_row && a.weight.rows == b.weight.rows &&
               a.weight.cols == b.weight.cols && a.weight.dtype == b.weight.dtype;
    };
    std::vector<Parameter> theirs(from.parameters().begin(), from.parameters().end());
    if (model().config().mtp_num_layers == 0) erase_depths(from.config(), theirs);
    if (!std::ranges::equal(mine, theirs, same)) {
        throw UsageError(
            "copy_weights: the models are not cut alike; give both the same configuration, ranks "
            "and "
            "layers per stage, and the default vocabulary mode");
    }
    if (std::ranges::any_of(theirs, &Parameter::shards_weight)) {
        throw UsageError(
            "copy_weights: with ZeRO stage 3 each rank keeps a part of the weights; use stage 1 or "
            "2, or load a saved step");
    }
    const auto bytes_of_weight = [](const Tensor& weight) {
        return std::span(weight.as<std::byte>(), static_cast<size_t>(weight.bytes()));
    };
    for (size_t i = 0; i < mine.size(); ++i) {
        if (mine[i].weight.size() == 0) continue;
        std::vector<std::byte> bytes(static_cast<size_t>(mine[i].weight.bytes()));
        from.device().download(bytes_of_weight(theirs[i].weight).data(), bytes);
        model().device().upload(bytes, bytes_of_weight(mine[i].weight).data());
    }
    start_over();
}
LogitsShard TextGenerator::logits() {
    return implementation_->logits();
}
std::vector<int32_t> TextGenerator::next_drafted(std::span<const int32_t> tokens, int64_t most) {
    return implementation_->next_drafted(tokens, most);
}
const DraftCounts& TextGenerator::draft_counts() const {
    return implementation_->counts();
}
LogitsShard TextGenerator::draft_logits(int k) const {
    return implementation_->draft_logits(k);
}
int32_t TextGenerator::next(const SamplingOptions& options, double u) {
    return sample(implementation_->world(), logits(), options, u);
}
void TextGenerator::start_over() {
    implementation_->start_over();
}

}  // namespace vocabpipe
