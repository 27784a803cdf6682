// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/parameter_group.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace vocabpipe {

namespace kernels {
struct AdamWTensor;
struct StepScalars;
}  // namespace kernels

/// Options of AdamW (Loshchilov, Hutter 2019) and of clipping.
struct OptimizerOptions {
    float beta1 = 0.9F;                  ///< decay of the mean gradient
    float beta2 = 0.95F;                 ///< GPT-3's; 0.999 reacts too slowly within short runs
    float epsilon = 1e-8F;               ///< added to the root of the second moment
    float weight_decay = 0.1F;           ///< for parameters with Parameter::weight_decay
    float clip_grad = 1.0F;              ///< largest global gradient norm; 0: no clipping
    std::vector<ParameterGroup> groups;  ///< the first that matches a tensor applies
};

/// Arguments of a step.
struct StepStart {
    int64_t step = 1;            ///< from 1, for the bias correction
    float learning_rate = 0;     ///< before the multipliers of parameter groups
    int64_t counted_tokens = 0;  ///< of all replicas; 0 skips the update
    double stop_request = 0;     ///< added by this rank to StepResult::stop_requests
};

/// Losses and loads of the routers in a step, over all layers with experts, microbatches and
/// replicas.
struct RouterResult {
    double aux_loss = 0;  ///< mean load balancing loss, without coefficient: 1 is balance
    double z_loss = 0;    ///< mean z loss, without coefficient
    double max_load = 0;  ///< largest load of an expert over its layer's mean load
};

/// Results of a step; equal on every rank.
struct StepResult {
    double loss = 0;           ///< mean over the counted tokens
    double grad_norm = 0;      ///< global, before clipping
    bool updated = false;      ///< false: no counted token, or loss or norm not finite
    double stop_requests = 0;  ///< sum of StepStart::stop_request over the ranks
    std::optional<RouterResult> routers = {};  ///< none: a model without experts
    /// [depth] of multi-token prediction: sum over its labels of weight * loss, divided by the sum
    /// of the weights of all labels of the next token, as in DeepSeek-V3 (section 2.2). `loss` does
    /// not count them.
    std::vector<double> depth_losses = {};

    /// Whether both loss and norm are numbers.
    [[nodiscard]] bool finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }
};

/// Reduce, Report and Update of the GPT: tied gradients, global norm, clipping, AdamW.
class OptimizerStep final : public StepModule {
public:
    /// `model` and its device must outlive it. `rank`: of the world.
    OptimizerStep(ModelRank& model, const Schedule& schedule, int rank, OptimizerOptions options);
    ~OptimizerStep() override;

    /// Call before every step.
    void begin_step(const StepStart& start);
    /// Result of the last step; waits for the device.
    [[nodiscard]] StepResult result() const;

    [[nodiscard]] int64_t report_bytes() const override {
        return report_entries(model_.config()).bytes();
    }
    [[nodiscard]] RankBucket bucket(size_t index) override { return model_.bucket(index); }
    void place_weights(size_t bucket, Bytes whole) override { model_.place_weights(bucket, whole); }
    void place_gradients(size_t bucket, Bytes whole) override {
        model_.place_gradients(bucket, whole);
    }
    void reduce_tied(Context& ctx, Bytes received) override;
    void reduce_shared(Context& ctx, std::span<const SharedGradient> gradients) override;
    void report(Context& ctx, Bytes mine) override;
    void update(Context& ctx, std::span<const std::byte> all) override;

private:
    /// The bias of a router on this rank.
    struct CorrectionBias {
        Tensor bias;
        size_t routed_layer = 0;  ///< which of routed_layers_
    };

    [[nodiscard]] kernels::StepScalars* scalars() const;
    /// Sums of all routed_layers_ over all ranks, in the device's memory.
    [[nodiscard]] std::span<double> router_sums() const;
    template <typename T>
    [[nodiscard]] std::span<T> sums_of_layer(std::span<T> all, size_t routed_layer) const;
    [[nodiscard]] std::optional<RouterResult> router_result() const;
    [[nodiscard]] std::vector<double> depth_losses() const;
    [[nodiscard]] std::span<double> depth_sums() const;

    ModelRank& model_;
    bool reports_loss_ = false;  ///< lowest rank with output rows
    OptimizerOptions options_;
    DeviceMemory memory_;   ///< one StepScalars
    DeviceMemory routers_;  ///< router_sums()
    DeviceMemory depths_;   ///< losses of the depths, weighted as in the step's loss
    std::vector<kernels::AdamWTensor> tensors_;
    std::vector<int> routed_layers_;  ///< layers of the model with experts
    std::vector<CorrectionBias> correction_biases_;
};

}  // namespace vocabpipe
