// SPDX-License-Identifier: Apache-2.0
// A custom loss on a sharded vocabulary: the focal loss (Lin et al. 2017), (1 - p)^gamma times the
// cross-entropy -log p. It sees one number of every token, and no rank sees the logits of another.
//   custom_loss README.md
#include <cmath>
#include <cstdio>
#include <memory>

#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/token_loss.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

/// Loss and slope of every token, from its log-probability.
std::shared_ptr<const TokenLoss> focal_loss(double gamma) {
    return std::make_shared<HostTokenLoss>(
        TokenRecords{TokenRecord::logprob}, 0,
        [gamma](const TokenLossInput& in, const TokenLossOutput& out) {
            for (size_t n = 0; n < in.labels.size(); ++n) {
                if (in.labels[n] < 0) continue;  // the token does not count
                const double loss = -in.of(TokenRecord::logprob)[n];
                const double p = std::exp(-loss);
                const double weight = std::pow(1 - p, gamma);
                const double slope = weight + gamma * std::pow(1 - p, gamma - 1) * p * loss;
                out.loss[n] = static_cast<float>(weight * loss);
                out.gradient[n] = static_cast<float>(in.weights[n] * slope);
            }
        });
}

/// Trains on two ranks in this process.
void train(const char* text, double gamma) {
    const ModelConfig model{.seq_length = 64};
    const StepPlan plan =
        plan_step(model, {.ranks = 2}, {.name = "1f1b", .vocab_mode = VocabMode::two_barriers},
                  {.microbatches = 4, .loss = focal_loss(gamma)});
    const TokenDataset data(open_tokens(text, DataFormat::raw_u8), {.seq_length = 64});
    World::threads(2).run([&](Communicator& world) {
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
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
