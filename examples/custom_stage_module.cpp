// SPDX-License-Identifier: Apache-2.0
// A custom stage, y = x + gelu(w x): check_gradients() compares its gradients with finite
// differences, then two of them are a pipeline.
//   custom_stage_module README.md
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "vocabpipe/check_gradients.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

/// For x (N, h) and w (h, h) in fp32, in host memory.
class GeluStage final : public StageModule {
public:
    explicit GeluStage(const ModelConfig& model)
        : n_(model.seq_length), h_(model.hidden_size), weight_(h_ * h_), gradient_(h_ * h_) {
        for (size_t i = 0; i < weight_.size(); ++i) {
            weight_[i] = 0.1F * std::sin(static_cast<float>(i * i));
        }
        parameter_.name = "w";
        parameter_.weight = Tensor(weight_.data(), h_, h_, DType::fp32);
        parameter_.gradient = Tensor(gradient_.data(), h_, h_, DType::fp32);
    }

    /// w x lives from F to I; its gradient lives from I to W, or within B.
    [[nodiscard]] StageBytes bytes() const override {
        const int64_t rows = n_ * h_ * size_of(DType::fp32);
        return {.saved = rows, .for_weight = rows, .backward_workspace = rows};
    }
    [[nodiscard]] std::span<Parameter> parameters() override { return {&parameter_, 1}; }

    void forward(Context& ctx, const Microbatch&, ConstTensor x, Tensor y, Activations activations,
                 Bytes) override {
        const kernels::Operators& op = ctx.operators();
        op.linear_gelu_forward(ctx, x, parameter_.weight, {}, rows_in(activations.saved), y);
        op.add(ctx, x, y, y);
    }
    void backward_input(Context& ctx, const Microbatch&, ConstTensor dy, ConstTensor,
                        Activations activations, Tensor dx, Bytes for_weight, Bytes) override {
        const kernels::Operators& op = ctx.operators();
        op.activation_backward(ctx, kernels::Activation::gelu_tanh, dy, rows_in(activations.saved),
                               rows_in(for_weight));
        op.linear_backward_input(ctx, rows_in(for_weight), parameter_.weight, dx);
        op.add(ctx, dx, dy, dx);
    }
    void backward_weight(Context& ctx, const Microbatch&, ConstTensor x, Activations,
                         Bytes for_weight, Bytes, bool accumulate) override {
        ctx.operators().linear_backward_weight(ctx, rows_in(for_weight), x, parameter_.gradient, {},
                                               accumulate);
    }

private:
    [[nodiscard]] Tensor rows_in(Bytes bytes) const { return {bytes.data(), n_, h_, DType::fp32}; }

    int64_t n_, h_;
    std::vector<float> weight_, gradient_;
    Parameter parameter_;
};

/// Two custom stages between the library's embedding and output layer; ZB-H1 runs I and W.
void run_pipeline(const char* text) {
    const ModelConfig model{.num_layers = 0, .seq_length = 16, .init_std = 0.2F};
    const StepPlan plan = plan_step(model, {.ranks = 2},
                                    {.name = "zb-h1", .stage_bytes = {2, GeluStage(model).bytes()}},
                                    {.microbatches = 4, .optimizer = false});
    const TokenDataset data(open_tokens(text, DataFormat::raw_u8), {.seq_length = 16});
    World::threads(2).run([&](Communicator& world) {
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan, {.change_model = [&](ModelRank& of_rank) {
                             of_rank.replace_stage(world.rank(),
                                                   std::make_unique<GeluStage>(model));
                         }});
        StepBatch batch(data, {.micro_batch_size = plan.partition.micro_batch_size});
        batch.load(0, plan.microbatches());
        rank.run(batch.microbatches());
        if (world.rank() != 0) return;
        const auto losses = rank.output()->losses();
        std::printf("loss %.4f\n", std::accumulate(losses.begin(), losses.end(), 0.0));
    });
}

int main(int argc, char** argv) {
    const ModelConfig model{.seq_length = 16};
    GeluStage stage(model);
    const GradientCheck worst = check_gradients(
        stage, {.sequences = 1, .seq_length = 16, .hidden_size = model.hidden_size});
    std::printf("gradients agree with finite differences, that of %s within %.1e\n",
                worst.name.c_str(), worst.error);
    run_pipeline(argv[argc - 1]);
}
