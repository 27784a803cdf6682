// SPDX-License-Identifier: Apache-2.0
// A custom loss on a vocabulary shard: the focal loss (Lin et al. 2017), (1 - p)^gamma times the
// cross-entropy -log p. A rank sees only four numbers per token of the other ranks' shards.
//   custom_loss README.md
#include <cmath>
#include <cstdio>

#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

/// The gradients of a function of the cross-entropy are those of the cross-entropy, times the
/// function's slope: scores and products remain those of the model's own layer.
class FocalLoss final : public OutputLayer {
public:
    FocalLoss(OutputLayer& cross_entropy, double gamma) : base_(cross_entropy), gamma_(gamma) {}

    void begin_step(int microbatches) override {
        base_.begin_step(microbatches);
        losses_.assign(static_cast<size_t>(microbatches), 0);
    }
    [[nodiscard]] std::span<const double> losses() const override { return losses_; }

    /// Called when the statistics of all shards have arrived, on every rank alike.
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
                         bool accumulate) override {
        base_.weight_gradient(ctx, batch, x, exp_logits, factors, workspace, accumulate);
    }

private:
    /// -log p of token n. A shard's statistics are a reference m, the sum of exp(z - m) without the
    /// label, and the label's z.
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

/// Trains on two ranks in this process.
void train(const char* text, double gamma) {
    const ModelConfig model{.seq_length = 64};
    const StepPlan plan =
        plan_step(model, {.ranks = 2}, {.name = "1f1b", .vocab_mode = VocabMode::two_barriers},
                  {.microbatches = 4});
    const TokenDataset data(open_tokens(text, DataFormat::raw_u8), {.seq_length = 64});
    World::threads(2).run([&](Communicator& world) {
        const auto device = make_host_device();
        TrainedRank rank(
            world, *device, plan, {.change_model = [&](ModelRank& mine) {
                mine.replace_output(std::make_unique<FocalLoss>(*mine.output(), gamma));
            }});
        StepBatch batch(data, {.micro_batch_size = plan.partition.micro_batch_size});
        for (int step = 1; step <= 10; ++step) {
            batch.load(rank.position().consumed_samples, plan.microbatches());
            rank.train_step(batch, 3e-3);
            const double loss = rank.report().loss;
            if (world.rank() != 0 || step % 3 != 1) continue;
            std::printf("gamma %.0f   step %2d   loss %.4f\n", gamma, step, loss);
        }
    });
}

int main(int argc, char** argv) {
    for (const double gamma : {0.0, 2.0}) train(argv[argc - 1], gamma);  // 0: the cross-entropy
}
