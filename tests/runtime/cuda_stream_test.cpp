// SPDX-License-Identifier: Apache-2.0
// Streamed edges on CUDA devices: boundaries travel by pieces, and streams wait for the rows that
// they use and for no others. The bits of a single rank on the same kind of device.
#include "tests/model/model_cases.hpp"
#include "tests/runtime/cuda_interruption.hpp"
#include "tests/runtime/cuda_pipeline.hpp"
#include "tests/support/full_run.hpp"
#include "vocabpipe/cuda/stream.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

struct CudaStream {
    ScheduleCase schedule;
    CudaTransport transport = CudaTransport::copies;
    int pieces = 2;
    friend void PrintTo(const CudaStream& run, std::ostream* out) {
        PrintTo(run.schedule, out);
        *out << (run.transport == CudaTransport::nccl ? " nccl " : " copies ") << run.pieces;
    }
};

/// Every family with one mode, transport, number of ranks (2 or 3) and of pieces (2 or 5), in turn.
/// In a full run all, of 4 ranks, too.
std::vector<CudaStream> every_stream() {
    std::vector<CudaStream> runs;
    for (const ScheduleCase& c : every_schedule(std::array{2, 3, 4})) {
        const size_t cell = c.turn / 3, family = cell / kEveryVocabMode.size();
        const bool in_fast_run =
            cell % kEveryVocabMode.size() == 2 * family % kEveryVocabMode.size() &&
            c.turn % 3 == family % 2;
        size_t turn = 0;
        for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
            for (const int pieces : {2, 5}) {
                const bool in_turn = turn++ == family / 2 % 4;
                if (transport == CudaTransport::nccl && c.ranks > gpus_for_nccl()) continue;
                if (full_run() || (in_fast_run && in_turn)) runs.push_back({c, transport, pieces});
            }
        }
    }
    return runs;
}

class CudaStreams : public CudaTestWithParam<CudaStream> {};

TEST_P(CudaStreams, LeaveTheBitsOfASingleRankOnTheDevice) {
    const auto& [c, transport, pieces] = GetParam();
    StepCase step = step_cases(c, 1).front();
    // Sequences of 6 tokens: 72 or 168 rows, of which the last piece's are no multiple of 16.
    step.sequences = pieces == 2 ? 12 : 28;
    const Schedule schedule = schedule_of(c, step);
    const int layers = std::max(1, schedule.stages + (c.turn % 2 == 0 ? 1 : -1));
    const ModelConfig config = tiny_gpt(layers, step);
    const ModelPartition partition = even_partition(config, schedule, step.sequences);
    const Batch batch = random_batch(config, step.microbatches, step.sequences, 3);
    Gradients expected;
    {
        const std::unique_ptr<Device> device = single_rank_device(transport, c.ranks);
        expected = run_single_rank(config, partition, schedule, batch, 7, *device);
    }
    World world = World::threads(c.ranks, {.timeout_seconds = 30});
    EXPECT_EQ(first_difference(expected,
                               run_pipeline(world, config, partition, schedule, batch, 7,
                                            {.pieces = pieces, .make_device = devices(transport)})),
              "");
}

std::string name_of_stream(const ::testing::TestParamInfo<CudaStream>& info) {
    const bool nccl = info.param.transport == CudaTransport::nccl;
    return test_name(info.param.schedule) + (nccl ? "_nccl_" : "_copies_") +
           std::to_string(info.param.pieces);
}
INSTANTIATE_TEST_SUITE_P(Matrix, CudaStreams, ::testing::ValuesIn(every_stream()), name_of_stream);

class CudaStreamsOfFamilies : public CudaTestWithParam<std::string> {};

TEST_P(CudaStreamsOfFamilies, LeaveTheBitsOfASingleRankOnTheDevice) {
    size_t turn = 0;
    for (const char* name : {"1f1b", "zb-h1", "v-half"}) {
        const std::array granularities{Recompute::none, Recompute::selective, Recompute::full};
        const DType dtype = turn % 2 == 0 ? DType::bf16 : DType::fp32;
        const Recompute recompute = granularities[turn++ % granularities.size()];
        Schedule schedule = make_schedule(name, {.ranks = 2,
                                                 .microbatches = 3,
                                                 .vocab_mode = VocabMode::two_barriers,
                                                 .vocab_size = 29});
        ModelConfig config = small_family(GetParam(), schedule.stages + 1, 7, 29, false);
        config.dtype = dtype;
        const Batch batch = random_batch(config, 3, 12, 3);
        ModelPartition partition = even_partition(config, schedule, 12);
        // In bf16 the product takes GPT-2's GELU of its unrounded sum, unless GELU alone is
        // recomputed.
        if (!config.gated && recompute == Recompute::selective) partition.recompute = recompute;
        Gradients expected;
        {
            const auto device = single_rank_device(CudaTransport::copies, 2);
            expected = run_single_rank(config, partition, schedule, batch, 7, *device);
        }
        partition.recompute = recompute;
        if (recompute != Recompute::none) schedule = with_recomputation(schedule);
        World world = World::threads(2, {.timeout_seconds = 30});
        EXPECT_EQ(first_difference(
                      expected,
                      run_pipeline(world, config, partition, schedule, batch, 7,
                                   {.pieces = 2, .make_device = devices(CudaTransport::copies)})),
                  "")
            << name << " " << size_of(dtype) << " bytes, recompute " << static_cast<int>(recompute);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaStreamsOfFamilies, ::testing::ValuesIn(model_families()),
                         [](const auto& info) { return test_name(info.param); });

#ifdef VOCABPIPE_ON_STAND_IN
// --- what streams wait for -----------------------------------------------------------------------

/// Rows of a pass, with something to do behind every call.
class WatchedRows final : public StreamedRows {
public:
    using Look = std::function<void(bool made, int64_t end)>;
    WatchedRows(StreamedRows& inner, Look look) : inner_(inner), look_(std::move(look)) {}
    [[nodiscard]] int input_pieces() const override { return inner_.input_pieces(); }
    [[nodiscard]] int output_pieces() const override { return inner_.output_pieces(); }
    void need(int64_t end) override {
        inner_.need(end);
        look_(false, end);
    }
    void made(int64_t end) override {
        inner_.made(end);
        look_(true, end);
    }

private:
    StreamedRows& inner_;
    Look look_;
};

class CudaPieces : public ::testing::TestWithParam<CudaTransport> {
protected:
    void SetUp() override {
        if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
        if (GetParam() == CudaTransport::nccl && gpus_for_nccl() < 2)
            GTEST_SKIP() << "needs 2 GPUs";
    }
};

/// The stream of rank 0 stands between the first piece of a forward and the second one until that
/// of rank 1 has the first and goes on with it. Not on a GPU, where a host function may wait for
/// the end of another.
TEST_P(CudaPieces, AreUsedWhileTheNextAreMade) {
    std::atomic<bool> used{false};
    std::mutex mutex;
    std::vector<std::unique_ptr<InterruptedStage>> stages;
    std::array<std::unique_ptr<WatchedRows>, 2> rows;
    CudaPipeline pipeline{
        .ranks = 2, .steps = 1, .transport = GetParam(), .sequences = 12, .pieces = 2};
    pipeline.change_modules = [&](int rank, RankModules& modules) {
        const std::lock_guard lock(mutex);
        for (StageModule*& stage : modules.stages) {
            if (stage == nullptr) continue;
            stages.push_back(std::make_unique<InterruptedStage>(
                *stage, [&, at = static_cast<size_t>(rank)](Context& ctx, const Microbatch& m) {
                    StreamedRows* const inner = ctx.streamed();
                    if (m.index != 1 || inner == nullptr) return;
                    const auto look = [&, at, first = true](bool made, int64_t) mutable {
                        if (made != (at == 0) || !std::exchange(first, false)) return;
                        if (at == 0) return hold_up(cuda_stream(ctx), used);
                        const auto tell = [](void* flag) {
                            static_cast<std::atomic<bool>*>(flag)->store(true);
                        };
                        cuda::check(cudaLaunchHostFunc(cuda_stream(ctx), tell, &used),
                                    "cudaLaunchHostFunc");
                    };
                    rows.at(at) = std::make_unique<WatchedRows>(*inner, look);
                    ctx.stream(rows.at(at).get());
                }));
            stage = stages.back().get();
        }
    };
    EXPECT_NO_THROW(pipeline.run());
    EXPECT_TRUE(used);
}

/// As many as there can be, on streams that take 1024 entries.
TEST_P(CudaPieces, DoNotFillStreams) {
    if (!full_run()) GTEST_SKIP() << "takes long: VOCABPIPE_FULL";
    CudaPipeline pipeline{.ranks = 2,
                          .microbatches = 2,
                          .steps = 1,
                          .transport = GetParam(),
                          .mode = VocabMode::two_barriers,
                          .sequences = 342,
                          .pieces = kMostPieces};
    pipeline.at_end = [](Communicator&, Executor&, const std::vector<Program>& programs) {
        EXPECT_TRUE(std::ranges::any_of(programs[0].actions, [](const Action& action) {
            return action.pieces == kMostPieces;
        }));
    };
    cuda_stand_in::reset_counters();
    pipeline.run();
    EXPECT_EQ(cuda_stand_in::counters().blocked_launches, 0U);
}

INSTANTIATE_TEST_SUITE_P(, CudaPieces,
                         ::testing::Values(CudaTransport::copies, CudaTransport::nccl),
                         [](const auto& info) {
                             return info.param == CudaTransport::nccl ? "Nccl" : "Copies";
                         });
#endif

}  // namespace
}  // namespace vocabpipe::testing
