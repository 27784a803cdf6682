// SPDX-License-Identifier: Apache-2.0
// What modules see of rows that stream, and what the executor does for those that ask for fewer
// rows than there are or give none.
#include "vocabpipe/executor.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kRowsOfStream = 128;
constexpr int64_t kColsOfStream = 4;
constexpr int kPiecesOfStream = 4;  ///< of 32 rows

void fill_rows(Tensor rows, float value) {
    std::fill_n(rows.as<float>(), rows.size(), value);
}
bool rows_hold(ConstTensor rows, float value) {
    return std::all_of(rows.as<float>(), rows.as<float>() + rows.size(),
                       [&](float f) { return f == value; });
}

/// A stage whose forward is what the test says.
class StageOfTest final : public StageModule {
public:
    using Forward = std::function<void(Context&, ConstTensor x, Tensor y)>;
    StageOfTest(bool streams, Forward forward) : streams_(streams), forward_(std::move(forward)) {}

    [[nodiscard]] bool streams() const override { return streams_; }
    [[nodiscard]] StageBytes bytes() const override { return {}; }
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void forward(Context& ctx, const Microbatch&, ConstTensor x, Tensor y, Activations,
                 Bytes) override {
        forward_(ctx, x, y);
    }
    void backward_input(Context&, const Microbatch&, ConstTensor, ConstTensor, Activations, Tensor,
                        Bytes, Bytes) override {}
    void backward_weight(Context&, const Microbatch&, ConstTensor, Activations, Bytes, Bytes,
                         bool) override {}

private:
    bool streams_;
    Forward forward_;
};

class QuietInput final : public InputLayer {
public:
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void embed(Context&, const Microbatch&, Tensor out) override { fill_rows(out, 0); }
    void gradient(Context&, const Microbatch&, ConstTensor, bool) override {}
};

class QuietOutput final : public OutputLayer {
public:
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void score(Context&, const Microbatch&, ConstTensor, Tensor, Tensor, Bytes) override {}
    void input_product(Context&, ConstTensor, Tensor) override {}
    void combine_softmax(Context&, const Microbatch&, ConstTensor, int, Tensor) override {}
    void finish_input_gradient(Context&, const Microbatch&, ConstTensor, Tensor) override {}
    void weight_gradient(Context&, const Microbatch&, ConstTensor, ConstTensor, ConstTensor, Bytes,
                         bool) override {}
};

/// One microbatch forward over two ranks with a stage each; returns the timeline of rank 1.
Timeline run_forward(StageModule& first, StageModule& second, Program& program_of_second) {
    ScheduleOptions options{.ranks = 2, .microbatches = 1, .vocab_size = 64};
    options.forward_only = true;
    const Schedule schedule = make_schedule("1f1b", options);
    StepSizes sizes{.tokens = kRowsOfStream, .hidden = kColsOfStream};
    sizes.stages.resize(2);
    sizes.shards.resize(2, {.exp_logits = 64});
    const std::vector<Program> programs = lower(
        schedule, sizes, TableCosts::uniform(2, 2, 1000, 2000, 500), {.pieces = kPiecesOfStream});
    const std::vector<Microbatch> microbatches{
        {.index = 0, .sequences = 1, .seq_length = kRowsOfStream}};
    Timeline timeline;
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        const int rank = communicator.rank();
        const std::unique_ptr<Device> device = make_host_device();
        QuietInput input;
        QuietOutput output;
        RankModules modules;
        modules.stages = {rank == 0 ? &first : nullptr, rank == 1 ? &second : nullptr};
        if (schedule.input.rows(rank) > 0) modules.input = &input;
        if (schedule.output.rows(rank) > 0) modules.output = &output;
        Executor executor(communicator, *device, modules, sizes, {.poison_dead_buffers = true});
        executor.load(programs);
        executor.run_step(microbatches);
        if (rank != 1) return;
        timeline = executor.timeline();
        program_of_second = executor.program();
    });
    return timeline;
}

const Span& span_of(const Timeline& timeline, const Program& program, Do what) {
    return *std::ranges::find_if(timeline.spans, [&](const Span& span) {
        return program.actions[span.action].what == what;
    });
}

// Rank 0 keeps the second half back until rank 1's forward is over.
TEST(StreamingModules, EndTheirPassWhenAllRowsAreThereHoweverFewTheyAskFor) {
    std::atomic<bool> is_over = false;
    StageOfTest first(true, [&](Context& ctx, ConstTensor, Tensor y) {
        fill_rows(y.row_range(0, kRowsOfStream / 2), 3);
        ctx.streamed()->made(kRowsOfStream / 2);
        while (!is_over) {
            ctx.poll();
            std::this_thread::yield();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        fill_rows(y.row_range(kRowsOfStream / 2, kRowsOfStream / 2), 5);
    });
    StageOfTest second(true, [&](Context& ctx, ConstTensor x, Tensor y) {
        EXPECT_EQ(ctx.streamed()->input_pieces(), kPiecesOfStream);
        ctx.streamed()->need(kRowsOfStream / 2);
        EXPECT_TRUE(rows_hold(x.row_range(0, kRowsOfStream / 2), 3));
        fill_rows(y, 7);
        is_over = true;
    });
    Program program;
    const Timeline timeline = run_forward(first, second, program);
    const Span& received = span_of(timeline, program, Do::receive);
    const Span& pass = span_of(timeline, program, Do::pass);
    EXPECT_GE(pass.end_ns, received.end_ns);
    ASSERT_FALSE(timeline.piece_waits.empty());
    EXPECT_EQ(timeline.piece_waits.back().pass, pass.action);
    EXPECT_EQ(timeline.piece_waits.back().piece, kPiecesOfStream);
}

// Rank 0 gives half of its rows early and never says that the rest is made.
TEST(StreamingModules, ThatDoNotAskForRowsBeginWithAllOfThem) {
    StageOfTest first(true, [](Context& ctx, ConstTensor, Tensor y) {
        fill_rows(y.row_range(0, kRowsOfStream / 2), 3);
        ctx.streamed()->made(kRowsOfStream / 2);
        const auto later = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
        while (std::chrono::steady_clock::now() < later) ctx.poll();
        fill_rows(y.row_range(kRowsOfStream / 2, kRowsOfStream / 2), 3);
    });
    bool whole = false;
    StageOfTest second(false, [&](Context&, ConstTensor x, Tensor y) {
        whole = rows_hold(x, 3);
        fill_rows(y, 7);
    });
    Program program;
    (void)run_forward(first, second, program);
    EXPECT_TRUE(whole);
}

// Rank 0 makes a piece when rank 1 has asked for the one before.
TEST(StreamingModules, HaveTheRowsThatTheyAskForWhileOthersAreMade) {
    std::atomic<int> had = 0;
    StageOfTest first(true, [&](Context& ctx, ConstTensor, Tensor y) {
        EXPECT_EQ(ctx.streamed()->output_pieces(), kPiecesOfStream);
        EXPECT_EQ(ctx.streamed()->input_pieces(), 1) << "its input comes from its own rank";
        for (int k = 0; k < kPiecesOfStream; ++k) {
            while (had < k) {
                ctx.poll();
                std::this_thread::yield();
            }
            fill_rows(y.row_range(32 * k, 32), static_cast<float>(k + 1));
            ctx.streamed()->made(32 * (k + 1));
        }
    });
    StageOfTest second(true, [&](Context& ctx, ConstTensor x, Tensor y) {
        for (int k = 0; k < kPiecesOfStream; ++k) {
            ctx.streamed()->need(32 * (k + 1));
            EXPECT_TRUE(rows_hold(x.row_range(32 * k, 32), static_cast<float>(k + 1))) << k;
            had = k + 1;
        }
        fill_rows(y, 7);
    });
    Program program;
    const Timeline timeline = run_forward(first, second, program);
    EXPECT_LT(span_of(timeline, program, Do::pass).begin_ns,
              span_of(timeline, program, Do::receive).end_ns);
    // The pass began with the first piece, and waited once for each of the others.
    std::vector<int> pieces;
    for (const PieceWait& wait : timeline.piece_waits) pieces.push_back(wait.piece);
    EXPECT_EQ(pieces, (std::vector{2, 3, 4}));
}

}  // namespace
}  // namespace vocabpipe::testing
