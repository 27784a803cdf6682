// SPDX-License-Identifier: Apache-2.0
// A stage of your own: y = x + tanh(w x), its gradients held against finite differences of the
// loss.
//   custom_stage_module README.md
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "vocabpipe/executor.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/token_dataset.hpp"

using namespace vocabpipe;

/// For x (N, h) in fp32 on the host; w (1, h).
class TanhStage final : public StageModule {
public:
    explicit TanhStage(const StepSizes& sizes)
        : n_(sizes.tokens), h_(sizes.hidden), memory_(2 * h_, 0.5F) {
        parameter_.weight = Tensor(memory_.data(), 1, h_, DType::fp32);
        parameter_.gradient = Tensor(memory_.data() + h_, 1, h_, DType::fp32);
    }
    [[nodiscard]] float* w() { return parameter_.weight.as<float>(); }
    [[nodiscard]] float* dw() { return parameter_.gradient.as<float>(); }

    /// tanh(w x) lives from F to W, the gradient before tanh from I to W, or within B.
    [[nodiscard]] StageBytes bytes() const override {
        const int64_t rows = n_ * h_ * size_of(DType::fp32);
        return {.saved = rows, .for_weight = rows, .backward_workspace = rows};
    }
    [[nodiscard]] std::span<Parameter> parameters() override { return {&parameter_, 1}; }

    void forward(Context&, const Microbatch&, ConstTensor x, Tensor y, Saved saved,
                 Bytes) override {
        for (int64_t i = 0; i < n_ * h_; ++i) {
            floats(saved.kept)[i] = std::tanh(w()[i % h_] * x.as<float>()[i]);
            y.as<float>()[i] = x.as<float>()[i] + floats(saved.kept)[i];
        }
    }
    void backward_input(Context&, const Microbatch&, ConstTensor dy, ConstTensor, Saved saved,
                        Tensor dx, Bytes for_weight, Bytes) override {
        for (int64_t i = 0; i < n_ * h_; ++i) {
            const float t = floats(saved.kept)[i];
            floats(for_weight)[i] = dy.as<float>()[i] * (1 - t * t);
            dx.as<float>()[i] = dy.as<float>()[i] + floats(for_weight)[i] * w()[i % h_];
        }
    }
    void backward_weight(Context&, const Microbatch&, ConstTensor x, Saved, Bytes for_weight, Bytes,
                         bool overwrite) override {
        if (overwrite) std::fill_n(dw(), h_, 0.0F);
        for (int64_t i = 0; i < n_ * h_; ++i)
            dw()[i % h_] += x.as<float>()[i] * floats(for_weight)[i];
    }

private:
    static float* floats(Bytes bytes) { return reinterpret_cast<float*>(bytes.data()); }

    int64_t n_, h_;
    std::vector<float> memory_;
    Parameter parameter_;
};

/// Between the library's embedding and output layer stand two stages of ours; ZB-H1 runs I and W.
void check_gradients(const char* text) {
    const ModelConfig model{.num_layers = 0, .seq_length = 16, .init_std = 0.2F};
    const Schedule schedule = make_schedule("zb-h1", {.ranks = 2,
                                                      .microbatches = 4,
                                                      .vocab_mode = VocabMode::one_barrier,
                                                      .vocab_size = model.vocab_size});
    const ModelPartition partition{.layers_per_stage = {0, 0}, .optimizer = false};
    StepSizes sizes = step_sizes(model, partition, schedule);
    for (StageBytes& stage : sizes.stages) stage = TanhStage(sizes).bytes();
    const auto programs = lower(schedule, sizes, TableCosts::uniform(2, 2, 1000, 2000, 500));
    const TokenDataset data(open_tokens(text, DataFormat::raw_u8), {.seq_length = 16});

    World::threads(2).run([&](Communicator& world) {
        const auto device = make_host_device();
        ModelRank rank(model, partition, schedule, world.rank(), *device);
        TanhStage mine(sizes);
        RankModules modules = rank.modules();
        modules.stages[static_cast<size_t>(world.rank())] = &mine;
        Executor executor(world, *device, modules, sizes);
        executor.load(programs);
        rank.initialise(executor.context(), 1234);
        StepBatch batch(data, {.micro_batch_size = partition.micro_batch_size});
        batch.load(0, schedule.microbatches);
        const auto loss = [&] {
            executor.run_step(batch.microbatches());
            const auto losses = rank.output()->losses();
            return std::accumulate(losses.begin(), losses.end(), 0.0);
        };
        loss();
        // Along its gradient g the loss must grow at the rate |g|.
        const std::vector<float> g(mine.dw(), mine.dw() + sizes.hidden);
        const double length = std::sqrt(std::inner_product(g.begin(), g.end(), g.begin(), 0.0));
        for (int stage = 0; stage < world.size(); ++stage) {
            const auto loss_after = [&](double way) {  // every rank runs the step, one moves
                for (size_t i = 0; stage == world.rank() && i < g.size(); ++i) {
                    mine.w()[i] += static_cast<float>(way * g[i] / length);
                }
                return loss();
            };
            const double rate = (loss_after(0.05) - loss_after(-0.1)) / 0.1;
            loss_after(0.05);
            if (stage != world.rank()) continue;
            std::printf("stage %d: |g| %.6f, finite difference %.6f\n", stage, length, rate);
            if (std::abs(rate - length) > 0.02 * length) throw UsageError("the gradient is wrong");
        }
    });
    std::printf("gradients agree\n");
}

int main(int argc, char** argv) {
    check_gradients(argv[argc - 1]);
}
