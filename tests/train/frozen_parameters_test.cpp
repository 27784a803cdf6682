// SPDX-License-Identifier: Apache-2.0
// Frozen parameters: a run has the bits of the same run in which their rate is 0, on any mesh and
// with any schedule.
#include "src/model/parameter_groups.hpp"
#include "src/model/parameters.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/expert_setup.hpp"
#include "tests/train/tensor_setup.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/step_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

using Patterns = std::vector<std::string>;

std::vector<bool> frozen_of(const ModelConfig& config, const Patterns& patterns) {
    std::vector<ParameterGroup> groups;
    for (const std::string& pattern : patterns) {
        groups.push_back(parse_parameter_group(pattern));
    }
    return frozen_parameters(groups, logical_parameters(config));
}

/// A rate of 0 in place of freezing.
OptimizerOptions without_rate(const Patterns& patterns) {
    OptimizerOptions options{.clip_grad =
                                 0};  // gradients that no one else makes count for the norm
    for (const std::string& pattern : patterns) {
        ParameterGroup group = parse_parameter_group(pattern);
        if (group.freeze) group.lr_multiplier = 0;
        group.freeze = false;
        options.groups.push_back(group);
    }
    return options;
}

double norm_of(const Training& training) {
    double sum = 0;
    for (const auto& [name, values] : training.gradients) {
        if (name.ends_with(" (copy)")) continue;
        for (const float value : values) sum += double{value} * value;
    }
    return std::sqrt(sum);
}

/// Empty if every tensor of `part` has the bits that it has in `whole`.
std::string first_difference(const std::map<std::string, std::vector<float>>& whole,
                             const std::map<std::string, std::vector<float>>& part) {
    for (const auto& [name, values] : part) {
        const auto found = whole.find(name);
        if (found == whole.end()) return name + " is new";
        if (found->second != values) return name + " differs";
    }
    return "";
}

/// The run with these groups frozen against the run in which they have a rate of 0.
void expect_the_bits_of_rate_zero(TrainingSetup setup, const Patterns& patterns) {
    setup.optimizer = without_rate(patterns);
    const Training expected = train_on_threads(setup);
    setup.frozen = frozen_of(setup.config, patterns);
    const Training actual = train_on_threads(setup);
    EXPECT_EQ(actual.losses, expected.losses);
    EXPECT_EQ(first_difference(expected.weights, actual.weights), "");
    EXPECT_EQ(first_difference(expected.gradients, actual.gradients), "");
    EXPECT_EQ(actual.correction_biases, expected.correction_biases);
    EXPECT_NEAR(actual.grad_norms.back(), norm_of(actual), 1e-5 * norm_of(actual));
    const std::vector<LogicalParameter> parameters = logical_parameters(setup.config);
    for (size_t id = 0; id < parameters.size(); ++id) {
        if (parameters[id].correction_bias) continue;
        EXPECT_EQ(actual.gradients.contains(parameters[id].name), !setup.frozen[id])
            << parameters[id].name;
    }
    ASSERT_EQ(actual.routers.size(), expected.routers.size());
    for (size_t step = 0; step < actual.routers.size(); ++step) {
        ASSERT_EQ(actual.routers[step].has_value(), expected.routers[step].has_value());
        if (!actual.routers[step]) continue;
        EXPECT_EQ(actual.routers[step]->aux_loss, expected.routers[step]->aux_loss);
        EXPECT_EQ(actual.routers[step]->max_load, expected.routers[step]->max_load);
    }
}

/// Groups of GPT-2, and what they leave to be trained.
struct Choice {
    std::string name;
    Patterns patterns;
    friend void PrintTo(const Choice& c, std::ostream* out) { *out << c.name; }
};

std::vector<Choice> choices() {
    return {{"FromTheSecondLayerOn", {"*.wte.*:freeze", "*.wpe.*:freeze", "*.h.0.*:freeze"}},
            {"LastLayersFrozen", {"*.h.[2-9].*:freeze", "*.ln_f.*:freeze", "lm_head*:freeze"}},
            {"AttentionOnly", {"*.attn.*:lr_mult=1", "*:freeze"}},
            {"BiasesOfProducts", {"*.c_*.bias:lr_mult=1", "*:freeze"}},
            {"WeightsOfProducts", {"*.c_*.weight:lr_mult=1", "*:freeze"}},
            {"OutputLayerOnly", {"lm_head*:lr_mult=1", "*:freeze"}},
            {"EmbeddingOnly", {"*.wte.*:lr_mult=1", "*:freeze"}},
            {"PositionsOnly", {"*.wpe.*:lr_mult=1", "*:freeze"}},
            {"LastNormOnly", {"*.ln_f.*:lr_mult=1", "*:freeze"}}};
}

class FrozenParameters : public ::testing::TestWithParam<Choice> {};

TEST_P(FrozenParameters, LeaveTheOthersTheBitsOfARunInWhichTheirRateIsZero) {
    size_t turn = 0;
    for (const char* schedule : {"1f1b", "zb-h1", "zb-v", "interleaved", "dualpipe-v"}) {
        for (const VocabMode mode :
             {VocabMode::none, VocabMode::one_barrier, VocabMode::two_barriers}) {
            const Mesh meshes[] = {
                {.pipeline = 1}, {.pipeline = 2}, {.pipeline = 2, .data = 2}, {.pipeline = 4}};
            const Mesh& mesh = meshes[turn % 4];
            SCOPED_TRACE(std::string(schedule) + " " + std::string(to_string(mode)) + " p " +
                         std::to_string(mesh.pipeline) + " d " + std::to_string(mesh.data));
            TrainingSetup setup =
                tensor_setup(schedule, mode, mesh, "gpt2",
                             turn % 2 == 0 ? DType::fp32 : DType::bf16, /*steps=*/3);
            setup.recompute = turn % 3 == 0   ? Recompute::none
                              : turn % 3 == 1 ? Recompute::full
                                              : Recompute::selective;
            expect_the_bits_of_rate_zero(setup, GetParam().patterns);
            ++turn;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Choices, FrozenParameters, ::testing::ValuesIn(choices()),
                         [](const auto& info) { return info.param.name; });

TEST(FrozenParameters, AreLeftOutOfTheWorkThatRanksShare) {
    for (const Patterns& patterns :
         {Patterns{"*.attn.*:lr_mult=1", "*:freeze"}, Patterns{"*.c_*.bias:lr_mult=1", "*:freeze"},
          Patterns{"*.wte.*:freeze", "*.wpe.*:freeze", "*.h.0.*:freeze"}}) {
        SCOPED_TRACE(patterns.front());
        for (const char* schedule : {"1f1b", "zb-h1"}) {
            expect_the_bits_of_rate_zero(
                tensor_setup(schedule, VocabMode::one_barrier, {.pipeline = 2, .tensor = 2}, "gpt2",
                             DType::fp32, 3),
                patterns);
            TrainingSetup context =
                context_setup(schedule, VocabMode::one_barrier, {.pipeline = 2, .context = 2},
                              "gpt2", DType::fp32, 3);
            expect_the_bits_of_rate_zero(context, patterns);
        }
    }
}

TEST(FrozenParameters, OfATiedEmbeddingHaveNeitherHalfOfItsGradient) {
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        TrainingSetup setup =
            tensor_setup("zb-h1", mode, {.pipeline = 2, .data = 2}, "gpt2", DType::bf16, 3);
        setup.config.tied = true;
        expect_the_bits_of_rate_zero(setup, {"*.wte.*:freeze"});
        expect_the_bits_of_rate_zero(setup, {"*.wte.*:lr_mult=1", "*:freeze"});
    }
}

TEST(FrozenParameters, MayBeThoseOfAnyBlock) {
    for (const std::string& family : model_families()) {
        SCOPED_TRACE(family);
        TrainingSetup setup = setup_on_mesh(
            "zb-h1", VocabMode::one_barrier, {.pipeline = 2}, kTensorVocabulary,
            [&](int layers) { return small_family(family, layers, 7, kTensorVocabulary, false); });
        setup.steps = 2;
        std::vector<ParameterGroup> every_other;
        int turn = 0;
        Patterns patterns;
        for (const LogicalParameter& p : logical_parameters(setup.config)) {
            if (p.correction_bias) continue;
            if (!p.gradient_with_previous) ++turn;
            if (turn % 2 == 0) patterns.push_back(p.name + ":freeze");
        }
        expect_the_bits_of_rate_zero(setup, patterns);
        expect_the_bits_of_rate_zero(setup, {"*norm*:lr_mult=1", "*.ln_*:lr_mult=1", "*:freeze"});
    }
}

TEST(FrozenParameters, OfExpertsKeepTheSumsOfTheirRouters) {
    for (const char* family : {"mixtral", "dots1"}) {
        for (const Mesh& mesh :
             {Mesh{.pipeline = 2}, Mesh{.pipeline = 2, .data = 2, .expert = 2}}) {
            const TrainingSetup setup =
                expert_setup("zb-h1", VocabMode::one_barrier, mesh, family, DType::fp32, 3);
            expect_the_bits_of_rate_zero(setup, {"*experts*:freeze"});
            expect_the_bits_of_rate_zero(setup, {"*norm*:lr_mult=1", "*:freeze"});
            expect_the_bits_of_rate_zero(setup, {"lm_head*:lr_mult=1", "*:freeze"});
        }
    }
}

// --- refusals

std::string refusal(const ModelConfig& config, std::vector<bool> frozen) {
    try {
        (void)plan_step(config, StepCluster{}, StepSchedule{},
                        StepWork{.frozen = std::move(frozen)});
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(FrozenParameters, ThatAModelCannotHaveAreRefused) {
    const ModelConfig config = small_family("gpt2", 2, 7, 29, false);
    EXPECT_EQ(refusal(config, frozen_of(config, {"*.wte.*:freeze"})), "");
    EXPECT_THAT(refusal(config, {true}), HasSubstr("1 entries, but the model has"));
    EXPECT_THAT(refusal(config, frozen_of(config, {"*:freeze"})), HasSubstr("nothing to train"));
    EXPECT_THAT(refusal(config, frozen_of(config, {"*.h.1.ln_2.bias:freeze"})),
                HasSubstr("transformer.h.1.ln_2.bias is frozen, but transformer.h.1.ln_2.weight "
                          "is not"));
    EXPECT_THAT(refusal(config, frozen_of(config, {"*.h.1.ln_2.weight:freeze"})),
                HasSubstr("transformer.h.1.ln_2.weight is frozen, but transformer.h.1.ln_2.bias "
                          "is not"));
}

// --- memory and passes

TEST(FrozenParameters, TakeTheMemoryOfTheirWeightsOnly) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        ModelConfig config = small_family("llama", 4, 8, 64, false);
        config.dtype = dtype;
        config.hidden_size = 32;  // whole cache lines in every type
        config.ffn_hidden_size = 64;
        config.kv_channels = 8;
        const StepPlan whole = plan_step(config, StepCluster{}, StepSchedule{}, StepWork{});
        const StepPlan part =
            plan_step(config, StepCluster{}, StepSchedule{},
                      StepWork{.frozen = frozen_of(config, {"*.layers.*:freeze"})});
        int64_t frozen = 0, trained = 0;
        for (const LogicalParameter& p : logical_parameters(config)) {
            const bool in_layer = p.name.find(".layers.") != std::string::npos;
            (in_layer ? frozen : trained) += p.rows * p.cols;
        }
        const auto bytes = [&](const StepPlan& plan) {
            return persistent_bytes(config, plan.partition, plan.schedule, 0);
        };
        EXPECT_EQ(bytes(part).weights, bytes(whole).weights);
        EXPECT_EQ(bytes(part).gradients, static_cast<uint64_t>(4 * trained));
        EXPECT_EQ(bytes(whole).gradients, static_cast<uint64_t>(4 * (trained + frozen)));
        const int64_t numbers = dtype == DType::fp32 ? 2 : 3;  // moments, masters
        EXPECT_EQ(bytes(part).optimizer, static_cast<uint64_t>(4 * numbers * trained));
        EXPECT_EQ(
            stored_bytes(config, part.partition, part.schedule, 0),
            static_cast<uint64_t>((trained + frozen) * size_of(dtype) + 4 * numbers * trained));
    }
}

TEST(FrozenParameters, ExchangeNothingBetweenReplicas) {
    const ModelConfig config = small_family("llama", 4, 8, 64, false);
    const StepPlan plan = plan_step(
        config, StepCluster{.ranks = 2, .replicas = 2}, StepSchedule{},
        StepWork{.microbatches = 2, .frozen = frozen_of(config, {"*.layers.[013].*:freeze"})});
    std::vector<int> stages;
    for (const std::vector<GradientBucket>& buckets : plan.sizes.buckets) {
        for (const GradientBucket& bucket : buckets) {
            if (bucket.of == GradientBucket::Of::stage) stages.push_back(bucket.stage);
        }
    }
    EXPECT_EQ(stages, (std::vector{1, 1}));  // layer 2 and the final norm
}

int count(const StepPlan& plan, Op op, int stage) {
    int found = 0;
    for (const std::vector<Pass>& list : plan.schedule.passes) {
        found += static_cast<int>(std::ranges::count_if(list, [&](const Pass& pass) {
            return pass.op == op && (!traits(op).has_stage || pass.stage == stage);
        }));
    }
    return found;
}

TEST(FrozenParameters, HaveNoPassesOfTheirOwn) {
    const ModelConfig config = small_family("llama", 4, 8, 64, false);
    const auto plan = [&](const Patterns& patterns) {
        return plan_step(config, StepCluster{.ranks = 4}, StepSchedule{.name = "zb-h1"},
                         StepWork{.microbatches = 6, .frozen = frozen_of(config, patterns)});
    };
    const StepPlan middle = plan({"*.layers.[12].*:freeze"});
    for (const int stage : {0, 3}) {
        EXPECT_EQ(count(middle, Op::W, stage), count(middle, Op::I, stage)) << stage;
        EXPECT_GT(count(middle, Op::W, stage), 0) << stage;
    }
    for (const int stage : {1, 2}) {
        EXPECT_EQ(count(middle, Op::W, stage), 0) << stage;
        EXPECT_EQ(count(middle, Op::I, stage), 0) << stage;
        EXPECT_EQ(count(middle, Op::B, stage), 6) << stage;
    }
    EXPECT_EQ(count(middle, Op::G, 0), 4 * 6);

    const StepPlan top = plan({"*.layers.[01].*:freeze", "*embed_tokens*:freeze"});
    for (const int stage : {0, 1}) {
        EXPECT_EQ(count(top, Op::F, stage), 6);
        for (const Op op : {Op::B, Op::I, Op::W}) EXPECT_EQ(count(top, op, stage), 0) << stage;
    }
    EXPECT_EQ(count(top, Op::I, 2), 6);
    EXPECT_EQ(count(top, Op::G, 0), 0);
    EXPECT_LT(top.lowered.pipeline[0].arena_bytes, middle.lowered.pipeline[0].arena_bytes);
}

}  // namespace
}  // namespace vocabpipe::testing
