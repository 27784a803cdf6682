// SPDX-License-Identifier: Apache-2.0
// What a plan says of memory is what a run plans: bytes of stages and shards, weights, gradients
// and optimizer state of every place, for all families.
#include "kernels/host/operators.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "src/model/parameters.hpp"
#include "src/model/router_sums.hpp"
#include "src/plan/step_model.hpp"
#include "vocabpipe/model_rank.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Wide enough that padding to cache lines is little.
ModelConfig model_of(std::string_view family) {
    ModelConfig config;
    config.num_layers = 4;
    config.hidden_size = 256;
    config.ffn_hidden_size = 640;
    config.num_attention_heads = 8;
    config.seq_length = config.max_position_embeddings = 64;
    config.vocab_size = 1024;
    config.dtype = DType::bf16;
    set_family(config, family);
    if (config.gated) config.num_query_groups = 4;
    if (config.moe.experts > 0) {
        config.moe.experts = 32;
        config.moe.ffn_hidden_size = 192;
    }
    return config;
}

struct Case {
    std::string family;
    Mesh mesh;
    Recompute recompute = Recompute::none;
    int expert_tensor = 1;
    int depths = 0;  ///< of multi-token prediction
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const std::string& family : model_families()) {
        all.push_back({family, {.pipeline = 2}, Recompute::selective});
        all.push_back({family, {.pipeline = 4, .data = 2, .tensor = 2}, Recompute::full});
        all.push_back({family, {.pipeline = 1, .data = 2, .tensor = 4}});
        if (!has_embedded_tokens(model_of(family))) {
            all.push_back({family, {.pipeline = 2}, Recompute::selective, 1, 1});
            all.push_back({family, {.pipeline = 4, .data = 2, .tensor = 2}, Recompute::full, 1, 2});
            all.push_back({family, {.pipeline = 1, .data = 2, .tensor = 4}, Recompute::none, 1, 1});
        }
        if (model_of(family).moe.experts == 0) continue;
        all.push_back({family, {.pipeline = 2, .data = 2, .expert = 2}, Recompute::none, 1, 2});
        all.push_back({family, {.pipeline = 2, .data = 2, .expert = 2}});
        all.push_back({family, {.pipeline = 1, .data = 4, .tensor = 2, .expert = 4}});
        all.push_back({family, {.data = 4, .expert = 4}, Recompute::selective, 2});
        all.push_back({family, {.pipeline = 2, .data = 2, .tensor = 2, .expert = 4}, {}, 4});
    }
    // Ranks do not share latent attention.
    std::erase_if(all, [](const Case& of) {
        return of.mesh.tensor > 1 && model_of(of.family).has_latents();
    });
    return all;
}

/// Those of a run on a device whose attention needs no workspace.
const kernels::Operators& without_workspace() {
    static const kernels::Operators operators = [] {
        kernels::Operators of_host = kernels::host::operators();
        of_host.attention_workspace_bytes = [](kernels::AttentionShape, DType, int) {
            return int64_t{0};
        };
        return of_host;
    }();
    return operators;
}

class PlannedSizes : public ::testing::TestWithParam<Case> {
protected:
    PlannedSizes() {
        const Case& of = GetParam();
        config_.mtp_num_layers = of.depths;
        options_.model.config = config_;
        options_.device = load_device("h100");
        options_.device.reserve_gib.value = 0;
        options_.gpus = of.mesh.size();
        options_.seq_length = config_.seq_length;
        candidate_ = {.schedule = "1f1b",
                      .vocab_mode = VocabMode::one_barrier,
                      .layers_per_stage = std::vector<int>(static_cast<size_t>(of.mesh.pipeline),
                                                           4 / of.mesh.pipeline),
                      .mesh = of.mesh,
                      .expert_tensor = of.expert_tensor,
                      .micro_batch_size = 2,
                      .recompute = of.recompute,
                      .microbatches = 4};
        partition_ = {.layers_per_stage = candidate_.layers_per_stage,
                      .micro_batch_size = 2,
                      .replicas = of.mesh.data,
                      .tensor = of.mesh.tensor,
                      .expert = of.mesh.expert,
                      .expert_tensor = of.expert_tensor,
                      .recompute = of.recompute,
                      .operators = &without_workspace()};
    }
    StepModel planned() const {
        return step_model(options_, unit_costs(ModelOnDevice(options_), candidate_), candidate_);
    }
    /// Bytes of the parameters of every place of the pipeline.
    void expect_parameters_of_a_run() const {
        const StepModel plan = planned();
        const Mesh& mesh = candidate_.mesh;
        for (int k = 0; k < mesh.pipeline; ++k) {
            SCOPED_TRACE(k);
            PersistentBytes most;
            for (int slice = 0; slice < mesh.slices(); ++slice) {
                const PersistentBytes bytes = persistent_bytes(config_, partition_, plan.placement,
                                                               k * mesh.slices() + slice);
                most = {.weights = std::max(most.weights, bytes.weights),
                        .gradients = std::max(most.gradients, bytes.gradients),
                        .optimizer = std::max(most.optimizer, bytes.optimizer)};
            }
            const PlannedMemory& memory = plan.persistent[static_cast<size_t>(k)];
            // Parts of a bucket are whole rows.
            constexpr int64_t kHalfRow = 640 * 12 / 2;  // of the widest tensor
            const bool shared = candidate_.zero.stage > 1;
            const int64_t rows = mesh.slices() > 1 ? std::max(memory.optimizer / 500, kHalfRow) : 0;
            EXPECT_LE(std::abs(memory.weights - static_cast<int64_t>(most.weights)),
                      shared ? rows : 0);
            // Sums of routers lie beside gradients.
            const auto routers = static_cast<int64_t>(
                RouterSums::bytes(config_, config_.num_layers + config_.mtp_num_layers));
            EXPECT_LE(std::abs(memory.gradients - static_cast<int64_t>(most.gradients)),
                      routers + (shared ? rows : 0));
            EXPECT_LE(std::abs(memory.optimizer - static_cast<int64_t>(most.optimizer)), rows);
        }
    }

    ModelConfig config_ = model_of(GetParam().family);
    PlanOptions options_;
    Candidate candidate_;
    ModelPartition partition_;
};

TEST_P(PlannedSizes, OfStagesAreThoseOfARun) {
    const StepModel plan = planned();
    const StepSizes run = step_sizes(config_, partition_, plan.placement);
    ASSERT_EQ(plan.sizes.stages.size(), run.stages.size());
    EXPECT_EQ(plan.sizes.boundary_rows(), run.boundary_rows());
    EXPECT_EQ(plan.sizes.has_experts, run.has_experts);
    for (size_t stage = 0; stage < run.stages.size(); ++stage) {
        SCOPED_TRACE(stage);
        for (const auto& [name, bytes] :
             {std::pair{"saved", &StageBytes::saved},
              {"recomputed", &StageBytes::recomputed},
              {"for_weight", &StageBytes::for_weight},
              {"forward_workspace", &StageBytes::forward_workspace},
              {"backward_workspace", &StageBytes::backward_workspace},
              {"input_gradient_workspace", &StageBytes::input_gradient_workspace},
              {"weight_gradient_workspace", &StageBytes::weight_gradient_workspace}}) {
            EXPECT_EQ(plan.sizes.stages[stage].*bytes, run.stages[stage].*bytes) << name;
        }
    }
    for (size_t rank = 0; rank < run.shards.size(); ++rank) {
        EXPECT_EQ(plan.sizes.shards[rank].exp_logits, run.shards[rank].exp_logits);
    }
}

TEST_P(PlannedSizes, OfParametersAreThoseOfARun) {
    expect_parameters_of_a_run();
}

TEST_P(PlannedSizes, OfSharedParametersAreThoseOfARun) {
    for (const int stage : {2, 3}) {
        SCOPED_TRACE(stage);
        candidate_.zero.stage = partition_.zero_stage = stage;
        expect_parameters_of_a_run();
        const StepModel plan = planned();
        const StepSizes run = step_sizes(config_, partition_, plan.placement);
        EXPECT_EQ(plan.sizes.weight_pass_reads_weights, run.weight_pass_reads_weights);
        ASSERT_EQ(plan.sizes.buckets.size(), run.buckets.size());
        for (size_t rank = 0; rank < run.buckets.size(); ++rank) {
            // A plan has one bucket where a run has several of one axis.
            const auto shared = [&](const StepSizes& sizes) {
                std::set<std::tuple<int, Axis, bool, bool>> found;
                for (const GradientBucket& b : sizes.buckets[rank]) {
                    if (b.of != GradientBucket::Of::stage) continue;
                    found.emplace(b.stage, b.axis, b.shards_gradients, b.shards_weights);
                }
                return found;
            };
            EXPECT_EQ(shared(plan.sizes), shared(run));
        }
    }
}

TEST_P(PlannedSizes, OfFrozenParametersAreThoseOfARun) {
    if (GetParam().depths > 0) GTEST_SKIP() << "goes with no depths";
    const ModelParameters model = model_parameters(config_);
    const auto range = [](ParameterRange ids, std::vector<bool>& frozen) {
        std::fill(frozen.begin() + ids.first, frozen.begin() + ids.end, true);
    };
    const std::vector<bool> none(model.all.size(), false);
    std::vector<bool> layers = none, below = none, products = none;
    for (const size_t layer : {0U, 2U}) range(model.layers[layer], layers);
    range(model.layers.front(), below);
    range(model.positions, below);
    below[static_cast<size_t>(model.embedding)] = true;
    for (size_t id = 0; id < model.all.size(); ++id) {
        products[id] = model.all[id].weight_decay && id % 3 != 0;
    }
    for (std::vector<bool>& frozen : std::array{layers, below, products}) {
        for (size_t id = 0; id < model.all.size(); ++id) {
            if (model.all[id].correction_bias) frozen[id] = false;
        }
        options_.frozen = partition_.frozen = frozen;
        expect_parameters_of_a_run();
        const StepModel plan = planned();
        const TrainedParts run = trained_parts(config_, partition_);
        EXPECT_EQ(plan.trained.stages, run.stages);
        EXPECT_EQ(plan.trained.first_backward, run.first_backward);
        EXPECT_EQ(plan.sizes.tied, step_sizes(config_, partition_, plan.placement).tied);
    }
}

INSTANTIATE_TEST_SUITE_P(Meshes, PlannedSizes, ::testing::ValuesIn(cases()), [](const auto& info) {
    const Case& of = info.param;
    return of.family + "_p" + std::to_string(of.mesh.pipeline) + "_t" +
           std::to_string(of.mesh.tensor) + "_d" + std::to_string(of.mesh.data) + "_e" +
           std::to_string(of.mesh.expert) + "_x" + std::to_string(of.expert_tensor) + "_" +
           std::string(to_string(of.recompute)) + "_D" + std::to_string(of.depths);
});

}  // namespace
}  // namespace vocabpipe::testing
