// SPDX-License-Identifier: Apache-2.0
// A loss of your own on a vocabulary shard: the focal loss (Lin et al. 2017), (1 - p)^gamma times
// the cross-entropy -log p. Of the other ranks' shards a rank sees four numbers per token only.
//   custom_loss README.md
#include <cmath>
#include <cstdio>

#include "vocabpipe/executor.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/optimizer_step.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/token_dataset.hpp"

using namespace vocabpipe;

/// A function of each token's cross-entropy has the gradients of the cross-entropy, times its
/// slope: scores and products stay the model's own layer's.
class FocalLoss final : public OutputLayer {
public:
    FocalLoss(OutputLayer& cross_entropy, double gamma) : base_(cross_entropy), gamma_(gamma) {}

    void begin_step(int microbatches) override {
        base_.begin_step(microbatches);
        losses_.assign(static_cast<size_t>(microbatches), 0);
    }
    [[nodiscard]] std::span<const double> losses() const override { return losses_; }

    /// After the statistics of all shards are there, on every rank alike.
    void combine_softmax(Context& ctx, const Microbatch& batch, ConstTensor statistics, int member,
                         Tensor factors) override {
        base_.combine_softmax(ctx, batch, statistics, member, factors);
        for (int64_t n = 0; n < batch.size(); ++n) {
            const float g = batch.loss_gradient[static_cast<size_t>(n)];
            if (g == 0) continue;  // the token does not count
            const double loss = cross_entropy(statistics, n, batch.size());
            const double p = std::exp(-loss);
            const double weight = std::pow(1 - p, gamma_);
            losses_[static_cast<size_t>(batch.index)] += g * weight * loss;
            const double slope = weight + gamma_ * std::pow(1 - p, gamma_ - 1) * p * loss;
            for (int64_t i = 0; factors && i < factors.cols; ++i) {
                factors.as<float>()[n * factors.stride + i] *= static_cast<float>(slope);
            }
        }
    }

    [[nodiscard]] std::span<Parameter> parameters() override { return base_.parameters(); }
    void score(Context& ctx, const Microbatch& batch, ConstTensor x, Tensor exp_logits,
               Tensor statistics, Bytes workspace) override {
        base_.score(ctx, batch, x, exp_logits, statistics, workspace);
    }
    void input_product(Context& ctx, ConstTensor exp_logits, Tensor u) override {
        base_.input_product(ctx, exp_logits, u);
    }
    void finish_input_gradient(Context& ctx, const Microbatch& batch, ConstTensor factors,
                               Tensor u) override {
        base_.finish_input_gradient(ctx, batch, factors, u);
    }
    void weight_gradient(Context& ctx, const Microbatch& batch, ConstTensor x,
                         ConstTensor exp_logits, ConstTensor factors, Bytes workspace,
                         bool overwrite) override {
        base_.weight_gradient(ctx, batch, x, exp_logits, factors, workspace, overwrite);
    }

private:
    /// -log p of token n: per shard a reference m, the sum of exp(z - m) without the label, the
    /// label's z.
    static double cross_entropy(ConstTensor statistics, int64_t n, int64_t tokens) {
        double label = 0;
        for (int64_t row = n; row < statistics.rows; row += tokens) label += at(statistics, row, 2);
        double sum = 1;  // of exp(z - label) over all rows
        for (int64_t row = n; row < statistics.rows; row += tokens) {
            sum += at(statistics, row, 1) * std::exp(at(statistics, row, 0) - label);
        }
        return std::log(sum);
    }
    static double at(ConstTensor t, int64_t n, int64_t i) {
        return t.as<float>()[n * t.stride + i];
    }

    OutputLayer& base_;
    double gamma_;
    std::vector<double> losses_;  ///< [microbatch]
};

/// On two ranks of this process.
void train(const char* text, double gamma) {
    const ModelConfig model{.seq_length = 64};
    const Schedule schedule = make_schedule("1f1b", {.ranks = 2,
                                                     .microbatches = 4,
                                                     .vocab_mode = VocabMode::two_barriers,
                                                     .vocab_size = model.vocab_size});
    const ModelPartition partition{.layers_per_stage = {1, 1}};
    const StepSizes sizes = step_sizes(model, partition, schedule);
    const auto programs = lower(schedule, sizes, TableCosts::uniform(2, 2, 1000, 2000, 500));
    const TokenDataset data(open_tokens(text, DataFormat::raw_u8), {.seq_length = 64});
    World::threads(2).run([&](Communicator& world) {
        const auto device = make_host_device();
        ModelRank rank(model, partition, schedule, world.rank(), *device);
        rank.replace_output(std::make_unique<FocalLoss>(*rank.output(), gamma));
        OptimizerStep optimizer(rank, schedule, world.rank(), {});
        Executor executor(world, *device, rank.modules(&optimizer), sizes);
        executor.load(programs);
        rank.initialise(executor.context(), 1234);
        StepBatch batch(data, {.micro_batch_size = partition.micro_batch_size});
        for (int step = 1; step <= 10; ++step) {
            batch.load((step - 1) * batch.global_batch_size(), schedule.microbatches);
            optimizer.begin_step(step, 3e-3F, batch.counted_tokens(), false);
            executor.run_step(batch.microbatches());
            const double loss = optimizer.result().loss;
            if (world.rank() != 0 || step % 3 != 1) continue;
            std::printf("gamma %.0f   step %2d   loss %.4f\n", gamma, step, loss);
        }
    });
}

int main(int argc, char** argv) {
    for (const double gamma : {0.0, 2.0}) train(argv[argc - 1], gamma);  // 0: the cross-entropy
}
