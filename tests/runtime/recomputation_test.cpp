// SPDX-License-Identifier: Apache-2.0
// What a stage gets to work with when its schedule recomputes: layers that know what every buffer
// must hold, on ranks that are threads, with the memory of dead buffers poisoned.
#include "tests/support/random_schedule.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/with_recomputation.hpp"
#include "vocabpipe/world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kTokens = 4;
constexpr int64_t kHidden = 2;
constexpr StageBytes kBytes{.saved = 96,
                            .recomputed = 704,
                            .for_weight = 80,
                            .forward_workspace = 48,
                            .backward_workspace = 112,
                            .input_gradient_workspace = 144,
                            .weight_gradient_workspace = 16};

void fill(Bytes bytes, int value) {
    std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(value));
}
void fill(Tensor tensor, float value) {
    std::fill_n(tensor.as<float>(), tensor.size(), value);
}
bool holds(Bytes bytes, int64_t size, int value) {
    return std::ssize(bytes) == size && std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) {
               return b == static_cast<std::byte>(value);
           });
}
bool holds(ConstTensor tensor, float value) {
    return tensor.rows == kTokens && tensor.cols == kHidden &&
           std::all_of(tensor.as<float>(), tensor.as<float>() + tensor.size(),
                       [&](float f) { return f == value; });
}

/// Adds 1 to its input and to its gradient, and checks everything it is given.
class CheckingStage final : public StageModule {
public:
    /// `last`: the last stage; `x` and `dy`: what the first and last get per microbatch.
    CheckingStage(int stage, int last, float x, float dy)
        : stage_(stage), last_(last), first_x_(x), last_dy_(dy) {}

    [[nodiscard]] StageBytes bytes() const override { return kBytes; }
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void forward(Context&, const Microbatch& mb, ConstTensor x, Tensor y, Activations activations,
                 Bytes workspace) override {
        EXPECT_TRUE(holds(x, x_of(mb))) << name(mb);
        EXPECT_EQ(std::ssize(workspace), kBytes.forward_workspace);
        ASSERT_EQ(std::ssize(activations.saved), kBytes.saved);
        ASSERT_EQ(std::ssize(activations.recomputed), kBytes.recomputed);
        fill(y, x_of(mb) + 1);
        fill(activations.saved, saved_of(mb));
        fill(activations.recomputed, recomputed_of(mb));
        fill(workspace, 0xee);
        calls[mb.index] += "F";
    }
    void recompute(Context&, const Microbatch& mb, ConstTensor x, Activations activations,
                   Bytes workspace) override {
        EXPECT_TRUE(holds(x, x_of(mb))) << name(mb);
        EXPECT_TRUE(holds(activations.saved, kBytes.saved, saved_of(mb))) << name(mb);
        EXPECT_EQ(std::ssize(workspace), kBytes.forward_workspace);
        ASSERT_EQ(std::ssize(activations.recomputed), kBytes.recomputed);
        fill(activations.recomputed, recomputed_of(mb));
        fill(workspace, 0xee);
        calls[mb.index] += "R";
    }
    void backward(Context&, const Microbatch& mb, ConstTensor dy, ConstTensor x,
                  Activations activations, Tensor dx, Bytes workspace, bool) override {
        expect_all(mb, x, activations);
        EXPECT_TRUE(holds(dy, dy_of(mb))) << name(mb);
        EXPECT_EQ(std::ssize(workspace), kBytes.backward_workspace);
        fill(dx, dy_of(mb) + 1);
        calls[mb.index] += "B";
    }
    void backward_input(Context&, const Microbatch& mb, ConstTensor dy, ConstTensor x,
                        Activations activations, Tensor dx, Bytes for_weight,
                        Bytes workspace) override {
        expect_all(mb, x, activations);
        EXPECT_TRUE(holds(dy, dy_of(mb))) << name(mb);
        EXPECT_EQ(std::ssize(workspace), kBytes.input_gradient_workspace);
        ASSERT_EQ(std::ssize(for_weight), kBytes.for_weight);
        fill(dx, dy_of(mb) + 1);
        fill(for_weight, saved_of(mb) ^ 0x55);
        calls[mb.index] += "I";
    }
    void backward_weight(Context&, const Microbatch& mb, ConstTensor x, Activations activations,
                         Bytes for_weight, Bytes workspace, bool) override {
        expect_all(mb, x, activations);
        EXPECT_TRUE(holds(for_weight, kBytes.for_weight, saved_of(mb) ^ 0x55)) << name(mb);
        EXPECT_EQ(std::ssize(workspace), kBytes.weight_gradient_workspace);
        calls[mb.index] += "W";
    }

    std::map<int, std::string> calls;  ///< [microbatch]

private:
    [[nodiscard]] std::string name(const Microbatch& mb) const {
        return "stage " + std::to_string(stage_) + ", microbatch " + std::to_string(mb.index);
    }
    [[nodiscard]] float x_of(const Microbatch& mb) const {
        return first_x_ * static_cast<float>(mb.index + 1) + static_cast<float>(stage_);
    }
    [[nodiscard]] float dy_of(const Microbatch& mb) const {
        return last_dy_ * static_cast<float>(mb.index + 1) + static_cast<float>(last_ - stage_);
    }
    [[nodiscard]] int saved_of(const Microbatch& mb) const { return 16 * stage_ + mb.index; }
    [[nodiscard]] int recomputed_of(const Microbatch& mb) const { return 255 - saved_of(mb); }
    void expect_all(const Microbatch& mb, ConstTensor x, Activations activations) const {
        EXPECT_TRUE(holds(x, x_of(mb))) << name(mb);
        EXPECT_TRUE(holds(activations.saved, kBytes.saved, saved_of(mb))) << name(mb);
        EXPECT_TRUE(holds(activations.recomputed, kBytes.recomputed, recomputed_of(mb)))
            << name(mb);
    }

    int stage_, last_;
    float first_x_, last_dy_;
};

class CountingInput final : public InputLayer {
public:
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void embed(Context&, const Microbatch& mb, Tensor out) override {
        fill(out, static_cast<float>(mb.index + 1));
    }
    void gradient(Context&, const Microbatch&, ConstTensor, bool) override {}
};

class CountingOutput final : public OutputLayer {
public:
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void score(Context&, const Microbatch&, ConstTensor, Tensor, Tensor, Bytes) override {}
    void input_product(Context&, ConstTensor, Tensor) override {}
    void combine_softmax(Context&, const Microbatch&, ConstTensor, int, Tensor) override {}
    void finish_input_gradient(Context&, const Microbatch& mb, ConstTensor, Tensor u) override {
        fill(u, static_cast<float>(mb.index + 1));
    }
    void weight_gradient(Context&, const Microbatch&, ConstTensor, ConstTensor, ConstTensor, Bytes,
                         bool) override {}
};

/// The passes of every microbatch of a stage, in the order of the schedule: "FRIW".
std::map<int, std::string> planned_calls(const Schedule& schedule, int stage) {
    std::map<int, std::string> calls;
    for (const std::vector<Pass>& list : schedule.passes) {
        for (const Pass& pass : list) {
            if (!traits(pass.op).has_stage || pass.stage != stage) continue;
            calls[static_cast<int>(pass.microbatch)] += traits(pass.op).name;
        }
    }
    return calls;
}

void run_and_check(World& world, const Schedule& schedule) {
    StepSizes sizes;
    sizes.tokens = kTokens;
    sizes.hidden = kHidden;
    sizes.stages.assign(static_cast<size_t>(schedule.stages), kBytes);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        sizes.shards.push_back({.exp_logits = kTokens * 4 * schedule.output.rows(rank)});
    }
    // Every shard adds the same.
    const auto inputs = static_cast<float>(schedule.input.owners().size());
    const auto outputs = static_cast<float>(schedule.output.owners().size());
    TableCosts costs = TableCosts::uniform(schedule.ranks, schedule.stages, 1000, 2000, 500);
    costs.latency_ns = 10;
    const std::vector<Program> programs = lower(schedule, sizes, costs);
    std::vector<Microbatch> microbatches;
    for (int j = 0; j < schedule.microbatches; ++j) {
        microbatches.push_back({.index = j, .sequences = 1, .seq_length = kTokens});
    }
    world.run([&](Communicator& communicator) {
        const int rank = communicator.rank();
        const std::unique_ptr<Device> device = make_host_device();
        std::vector<std::unique_ptr<CheckingStage>> stages(static_cast<size_t>(schedule.stages));
        RankModules modules;
        for (int s = 0; s < schedule.stages; ++s) {
            auto& stage = stages[static_cast<size_t>(s)];
            if (schedule.rank_of_stage[static_cast<size_t>(s)] == rank) {
                stage = std::make_unique<CheckingStage>(s, schedule.stages - 1, inputs, outputs);
            }
            modules.stages.push_back(stage.get());
        }
        CountingInput input;
        CountingOutput output;
        if (schedule.input.rows(rank) > 0) modules.input = &input;
        if (schedule.output.rows(rank) > 0) modules.output = &output;
        Executor executor(communicator, *device, modules, sizes, {.poison_dead_buffers = true});
        executor.load(programs);
        executor.run_step(microbatches);
        for (int s = 0; s < schedule.stages; ++s) {
            const auto& stage = stages[static_cast<size_t>(s)];
            if (stage) {
                EXPECT_EQ(stage->calls, planned_calls(schedule, s)) << "stage " << s;
            }
        }
    });
}

constexpr std::array kRecomputingRanks{1, 3};

class EveryScheduleOnThreads : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(EveryScheduleOnThreads, GivesItsStagesWhatTheyKeptAndWhatTheyMadeAgain) {
    World world = World::threads(GetParam().ranks, {.timeout_seconds = 30});
    for (const int microbatches : {1, 5}) {
        run_and_check(world,
                      with_recomputation(schedule_of(GetParam(), {.microbatches = microbatches})));
    }
}

INSTANTIATE_TEST_SUITE_P(, EveryScheduleOnThreads,
                         ::testing::ValuesIn(every_schedule(kRecomputingRanks)),
                         [](const auto& info) { return test_name(info.param); });

TEST(RandomSchedulesOnThreads, RecomputeSomeMicrobatchesAndKeepOthers) {
    std::mt19937 random(5);
    std::map<int, World> worlds;
    int with = 0;
    for (int i = 0; i < 200; ++i) {
        const Schedule schedule = random_schedule(random, {.one_in_forward_only = 0});
        with += has_recomputation(schedule) ? 1 : 0;
        auto world = worlds.find(schedule.ranks);
        if (world == worlds.end()) {
            world = worlds.emplace(schedule.ranks, World::threads(schedule.ranks)).first;
        }
        run_and_check(world->second, schedule);
        ASSERT_FALSE(HasFailure()) << describe(schedule);
    }
    EXPECT_GT(with, 30);
}

}  // namespace
}  // namespace vocabpipe::testing
