// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/text_generator.hpp"

#include "src/model/check_expert_parallel.hpp"
#include "src/model/key_value_cache.hpp"
#include "src/model/logits_layer.hpp"
#include "src/model/model_rank_internals.hpp"
#include "src/model/tensor_shard.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/receive_early.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// The model with a sequence length of `tokens`, rounded up to a multiple of t.
ModelConfig filled_up(const TextGeneratorOptions& options, int64_t tokens) {
    ModelConfig config = options.model;
    config.seq_length = largest_part(tokens, options.tensor) * options.tensor;
    return config;
}

/// A forward of `tokens` tokens of one sequence; the stages do not depend on their number.
StepPlan plan_forward(const TextGeneratorOptions& options, int64_t tokens) {
    check_expert_ranks(options.mesh(), options.expert_tensor);
    const StepCluster cluster{.ranks = options.ranks,
                              .replicas = options.mesh().data,
                              .tensor = options.tensor,
                              .expert = options.expert,
                              .expert_tensor = options.expert_tensor,
                              .threads_per_rank = options.threads_per_rank,
                              .operators = options.operators};
    const StepWork work{.evaluation = true, .optimizer = false, .training = false};
    StepSchedule schedule;
    schedule.layers_per_stage =
        place_step(filled_up(options, options.model.seq_length), cluster, schedule, work)
            .partition.layers_per_stage;
    StepPlan plan = plan_step(filled_up(options, tokens), cluster, schedule, work);
    ModelConfig config = options.model;
    config.seq_length = tokens;
    // Layers use the same memory in turn, and exponentials of logits are not kept.
    for (size_t s = 0; s < plan.sizes.stages.size(); ++s) {
        plan.sizes.stages[s] =
            ModelRankInternals::forward_bytes(config, plan.partition, static_cast<int>(s));
    }
    for (ShardBytes& shard : plan.sizes.shards) shard = {};
    plan.lowered = lower_step(plan.schedule, plan.sizes, plan.costs, {}).lowered;
    return plan;
}

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
ModelConfig without_tokens(const TextGeneratorOptions& options) {
    return filled_up(options, 1);
}

std::string name_of(int rank) {
    return "rank " + std::to_string(rank);
}

}  // namespace

/// The program of a forward of some number of tokens, with the stages that run it.
class Forward {
public:
    Forward(Communicator& world, ModelRank& model, LogitsLayer* output, const KeyValueCache& cache,
            const RotaryTables& rotary, const TextGeneratorOptions& options, int64_t tokens)
        : plan_(plan_forward(options, tokens)), output_(output), tokens_(tokens) {
        RankModules modules{.input = model.input(), .output = output};
        modules.stages.resize(static_cast<size_t>(plan_.schedule.stages));
        const Mesh::Place place = plan_.mesh().place(world.rank());
        world.agree([&] {
            for (int s = 0; s < plan_.schedule.stages; ++s) {
                if (plan_.schedule.rank_of_stage[static_cast<size_t>(s)] != place.pipeline)
                    continue;
                stages_.push_back(ModelRankInternals::forward_stage(model, plan_.partition, place,
                                                                    s, tokens, cache, rotary));
                modules.stages[static_cast<size_t>(s)] = stages_.back().get();
            }
        });
        executor_.emplace(world, model.device(), modules, plan_.sizes,
                          ExecutorOptions{.threads = options.threads_per_rank});
        executor_->load(plan_.lowered);
    }

    void run(std::span<const int32_t> tokens) {
        std::vector<int32_t> filled(tokens.begin(), tokens.end());
        filled.resize(static_cast<size_t>(plan_.sizes.tokens), tokens.back());
        const std::vector<int32_t> labels(filled.size(), -1);
        const std::vector<float> gradients(filled.size(), 0.0F);
        const Microbatch microbatch{.index = 0,
                                    .sequences = 1,
                                    .seq_length = std::ssize(filled),
                                    .tokens = filled,
                                    .labels = labels,
                                    .loss_gradient = gradients};
        if (output_ != nullptr) output_->score_token(tokens_ - 1);
        executor_->run_step({&microbatch, 1});
    }

private:
    StepPlan plan_;
    LogitsLayer* output_;  ///< null without rows of the vocabulary
    int64_t tokens_;
    std::vector<std::unique_ptr<TransformerStage>> stages_;
    std::optional<Executor> executor_;
};

class TextGenerator::Implementation {
public:
    Implementation(Communicator& world, Device& device, const TextGeneratorOptions& options)
        : world_(world),
          options_(options),
          plan_(plan_forward(options, 1)),
          context_(device.context(options.threads_per_rank, [] {})) {
        world.agree([&] {
            model_.emplace(without_tokens(options), plan_.partition, plan_.schedule, world.rank(),
                           device);
            rotary_.emplace(device, options.model, ContextCut(options.model.seq_length),
                            name_of(world.rank()));
            cache_.emplace(device, options.model, layers_of(plan_, world.rank()), options.tensor,
                           name_of(world.rank()));
            if (model_->output() != nullptr) {
                output_.emplace(device, model_->output()->parameters().front(),
                                options.model.logit_softcap);
            }
        });
        one_token_.emplace(world, *model_, output(), *cache_, *rotary_, options, 1);
    }

    [[nodiscard]] ModelRank& model() { return *model_; }
    [[nodiscard]] Context& context() { return context_; }

    void read(std::span<const int32_t> tokens) {
        if (std::ssize(tokens) - dropped_ > cache_->positions()) {
            cache_->clear();
            dropped_ = std::ssize(tokens) - std::max<int64_t>(cache_->positions() / 2, 1);
        }
        std::span<const int32_t> unseen =
            tokens.subspan(static_cast<size_t>(dropped_ + cache_->tokens()));
        if (cache_->tokens() == 0 && unseen.size() > 1) {
            Forward(world_, *model_, output(), *cache_, *rotary_, options_, std::ssize(unseen))
                .run(unseen);
            cache_->add(std::ssize(unseen));
            return;
        }
        for (; !unseen.empty(); unseen = unseen.subspan(1)) {
            one_token_->run(unseen.first(1));
            cache_->add(1);
        }
    }

    [[nodiscard]] LogitsShard logits() {
        if (!output_ || plan_.mesh().replica(world_.rank()) > 0) return {};
        return {output_->logits(), output_->first_row()};
    }
    [[nodiscard]] Communicator& world() { return world_; }

    void start_over() {
        cache_->clear();
        dropped_ = 0;
    }

private:
    [[nodiscard]] LogitsLayer* output() { return output_ ? &*output_ : nullptr; }

    Communicator& world_;
    TextGeneratorOptions options_;
    StepPlan plan_;
    Context context_;
    std::optional<ModelRank> model_;
    std::optional<RotaryTables> rotary_;
    std::optional<KeyValueCache> cache_;
    std::optional<LogitsLayer> output_;  ///< none without rows of the vocabulary
    std::optional<Forward> one_token_;
    int64_t dropped_ = 0;  ///< of the text, no longer in the context
};

TextGenerator::TextGenerator(Communicator& world, Device& device,
                             const TextGeneratorOptions& options)
    : implementation_(std::make_unique<Implementation>(world, device, options)) {}
TextGenerator::~TextGenerator() = default;

TextGeneratorBytes TextGenerator::bytes(const TextGeneratorOptions& options, int rank) {
    const StepPlan plan = plan_forward(options, options.model.seq_length);
    const auto layers = std::ssize(layers_of(plan, rank));
    const PersistentBytes held =
        persistent_bytes(without_tokens(options), plan.partition, plan.schedule, rank);
    return {.weights = held.total() + RotaryTables::bytes(options.model),
            .context = KeyValueCache::bytes(options.model, layers, options.tensor) +
                       static_cast<int64_t>(plan.lowered.of(rank).arena_bytes)};
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
    const std::span<Parameter> theirs = from.parameters();
    const auto same = [](const Parameter& a, const Parameter& b) {
        return a.name == b.name && a.first_row == b.first_row && a.weight.rows == b.weight.rows &&
               a.weight.cols == b.weight.cols && a.weight.dtype == b.weight.dtype;
    };
    if (!std::ranges::equal(mine, theirs, same)) {
        throw UsageError(
            "copy_weights: the models are not cut alike; give both the same configuration, ranks "
            "and "
            "layers per stage, and the default vocabulary mode");
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
int32_t TextGenerator::next(const SamplingOptions& options, double u) {
    return sample(implementation_->world(), logits(), options, u);
}
void TextGenerator::start_over() {
    implementation_->start_over();
}

}  // namespace vocabpipe
