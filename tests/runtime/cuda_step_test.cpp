// SPDX-License-Identifier: Apache-2.0
// What a step on CUDA devices promises besides its numbers: it does not wait for the device, its
// streams wait for each other where they must, and its timeline says what happened.
#include "tests/runtime/cuda_pipeline.hpp"
#include "tests/schedule/trace_reader.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/explain.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

namespace vocabpipe::testing {
namespace {

/// 132 rows: four pieces of 32 or more.
constexpr int64_t kSequencesOfPieces = 22;

class CudaStep : public ::testing::TestWithParam<CudaTransport> {
protected:
    void SetUp() override {
        if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
        if (GetParam() == CudaTransport::nccl && gpus_for_nccl() < 2)
            GTEST_SKIP() << "needs 2 GPUs";
    }
};

std::string name_of(const ::testing::TestParamInfo<CudaTransport>& info) {
    return info.param == CudaTransport::nccl ? "Nccl" : "Copies";
}

#ifdef VOCABPIPE_ON_STAND_IN
TEST_P(CudaStep, NeitherWaitsForTheDeviceNorAllocatesAfterTheFirstOne) {
    CudaPipeline pipeline{.ranks = 1, .steps = 3, .transport = GetParam()};
    for (const auto& [ranks, pieces] : {std::pair{1, 1}, {2, 1}, {2, 4}}) {
        SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << pieces << " pieces");
        pipeline.ranks = ranks;
        pipeline.pieces = pieces;
        if (pieces > 1) pipeline.sequences = kSequencesOfPieces;
        // All ranks are in the step while they count: the counters are those of the process.
        std::mutex mutex;
        std::condition_variable all_here;
        int arrived = 0;
        const auto meet = [&, ranks = ranks](const std::function<void()>& work) {
            std::unique_lock lock(mutex);
            const int round = arrived / ranks;
            if (++arrived % ranks == 0) {
                work();
                all_here.notify_all();
            } else {
                all_here.wait(lock, [&] { return arrived / ranks > round; });
            }
        };
        cuda_stand_in::Counters before;
        pipeline.before_step = [&](int, int) { meet([&] { before = cuda_stand_in::counters(); }); };
        pipeline.after_step = [&](int, int step) {
            meet([&] {
                if (step == 1) return;
                const cuda_stand_in::Counters after = cuda_stand_in::counters();
                EXPECT_EQ(after.device_synchronisations, before.device_synchronisations);
                EXPECT_EQ(after.stream_synchronisations, before.stream_synchronisations);
                EXPECT_EQ(after.event_synchronisations, before.event_synchronisations);
                EXPECT_EQ(after.blocking_copies, before.blocking_copies);
                EXPECT_EQ(after.allocations, before.allocations);
                EXPECT_EQ(after.frees, before.frees);
                EXPECT_EQ(after.blocked_launches, before.blocked_launches);
                EXPECT_EQ(after.false_dependencies, before.false_dependencies)
                    << "lanes of two ranks on one GPU are ten streams";
                EXPECT_GT(after.kernel_launches, before.kernel_launches);
            });
        };
        pipeline.run();
    }
}

TEST_P(CudaStep, LeavesMultiprocessorsToNccl) {
    // Rank 0 has posted the receive of its first gradient while it runs its forward passes.
    CudaPipeline pipeline{.ranks = 2, .steps = 2, .transport = GetParam()};
    cuda_stand_in::set_multiprocessors(64);
    const auto crowded = [&] {
        cuda_stand_in::reset_counters();
        pipeline.run();
        EXPECT_GT(cuda_stand_in::counters().matmuls, 0U);
        return cuda_stand_in::counters().crowded_matmuls;
    };
    EXPECT_EQ(crowded(), 0U);
    pipeline.make_device = [](int, CudaDeviceOptions options) {
        options.left_multiprocessors = 0;
        return make_cuda_device(options);
    };
    if (GetParam() == CudaTransport::nccl) {
        EXPECT_GT(crowded(), 0U) << "nothing overlaps that could";
    } else {
        EXPECT_EQ(crowded(), 0U) << "copies hold none";
    }
    cuda_stand_in::set_multiprocessors(0);
}

TEST_P(CudaStep, HasTheSameBitsHoweverItsStreamsAreDelayed) {
    const ModelConfig config = tiny_gpt(4, {.vocab_size = 53, .dtype = DType::bf16, .tied = true});
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier, VocabMode::interlaced,
                                 VocabMode::two_barriers}) {
        const bool recompute = mode == VocabMode::none;
        const bool streams = mode == VocabMode::two_barriers;
        const int64_t sequences = streams ? kSequencesOfPieces : 1;
        Schedule schedule =
            make_schedule(recompute ? "zb-h1" : "1f1b",
                          {.ranks = 3, .microbatches = 4, .vocab_mode = mode, .vocab_size = 53});
        const Batch batch = random_batch(config, 4, sequences, 5);
        ModelPartition partition = even_partition(config, schedule, sequences);
        if (recompute) {
            schedule = with_recomputation(schedule);
            partition.recompute = Recompute::full;
        }
        PipelineOptions options;
        options.steps = 2;
        options.pieces = streams ? 4 : 1;
        options.make_device = [](int rank) {
            return make_cuda_device(
                {.ordinal = GetParam() == CudaTransport::nccl ? gpu_of(rank) : rank % 2,
                 .transport = GetParam()});
        };
        const auto run = [&] {
            World world = World::threads(3, {.timeout_seconds = 30});
            return run_pipeline(world, config, partition, schedule, batch, 7, options);
        };
        const Gradients expected = run();
        for (const uint64_t seed : {1, 2}) {
            cuda_stand_in::set_delays({.seed = seed, .longest = std::chrono::microseconds(300)});
            const Gradients delayed = run();
            cuda_stand_in::set_delays({});
            EXPECT_EQ(first_difference(expected, delayed), "") << to_string(mode) << " " << seed;
        }
    }
}
#endif

/// The last step of a run of three ranks.
struct Executed {
    Timeline timeline;
    std::vector<Program> programs;
};
Executed execute(CudaTransport transport, int pieces = 1) {
    Executed result;
    std::mutex mutex;
    CudaPipeline pipeline{.ranks = transport == CudaTransport::nccl ? 2 : 3,
                          .microbatches = 6,
                          .transport = transport,
                          .mode = pieces > 1 ? VocabMode::two_barriers : VocabMode::one_barrier,
                          .sequences = pieces > 1 ? kSequencesOfPieces : 1,
                          .pieces = pieces};
    pipeline.at_end = [&](Communicator& communicator, Executor& executor,
                          const std::vector<Program>& programs) {
        Timeline all = executor.gather_timeline();
        const std::lock_guard lock(mutex);
        if (communicator.rank() == 0) result = {std::move(all), programs};
    };
    pipeline.run();
    return result;
}

/// Events of a GPU have a resolution of half a microsecond.
constexpr int64_t kResolutionNs = 1000;

void expect_edges_and_the_order_of_every_lane(const Executed& run) {
    std::vector<std::vector<const Span*>> of(run.programs.size());
    for (size_t rank = 0; rank < of.size(); ++rank) {
        of[rank].resize(run.programs[rank].actions.size(), nullptr);
    }
    std::vector<std::array<const Span*, kLanes>> last(run.programs.size());
    for (const Span& span : run.timeline.spans) {  // in the order of their starts
        ASSERT_EQ(of[span.rank][span.action], nullptr);
        of[span.rank][span.action] = &span;
        EXPECT_LE(span.begin_ns, span.end_ns);
        const Span*& before = last[span.rank][static_cast<size_t>(span.lane)];
        if (before != nullptr) {
            EXPECT_GE(span.begin_ns, before->end_ns - kResolutionNs);
        }
        before = &span;
    }
    for (const Program& program : run.programs) {
        const auto& spans = of[static_cast<size_t>(program.rank)];
        for (const Span* span : spans) ASSERT_NE(span, nullptr);
        std::vector<int64_t> last_end(spans.size(), INT64_MIN);
        for (uint32_t i = 0; i < program.edges.size(); ++i) {
            const Span& before = *spans[program.edges[i].before];
            const Span& after = *spans[program.edges[i].after];
            int64_t came = before.end_ns;
            if (std::ranges::binary_search(program.streamed, i)) {
                // Along the first rows. A pass waits for the event of the last piece, behind which
                // its lane records the end of the message: later, if its thread is.
                EXPECT_GE(after.begin_ns, before.begin_ns);
                came = std::min(came, after.begin_ns);
            } else {
                EXPECT_GE(after.begin_ns, came - kResolutionNs);
            }
            last_end[after.action] = std::max(last_end[after.action], came);
        }
        for (size_t i = 0; i < spans.size(); ++i) {
            if (last_end[i] == INT64_MIN) {
                EXPECT_EQ(spans[i]->waited_for, UINT32_MAX);
            } else {
                ASSERT_LT(spans[i]->waited_for, spans.size());
                const int64_t end = spans[spans[i]->waited_for]->end_ns;
                EXPECT_TRUE(program.streamed.empty() ? end == last_end[i] : end >= last_end[i]);
            }
        }
    }
}

TEST_P(CudaStep, TimelineKeepsEdgesAndTheOrderOfEveryLane) {
    expect_edges_and_the_order_of_every_lane(execute(GetParam()));
}

TEST_P(CudaStep, TimelineKeepsStreamedEdgesAndShowsWaitsForPiecesWithinTheirPass) {
    const Executed run = execute(GetParam(), 4);
    expect_edges_and_the_order_of_every_lane(run);
    for (const PieceWait& wait : run.timeline.piece_waits) {
        const Program& program = run.programs[wait.rank];
        EXPECT_LT(wait.begin_ns, wait.end_ns);
        EXPECT_GE(wait.piece, 2) << "a pass begins with the first piece";
        EXPECT_LE(wait.piece, program.actions[wait.source].pieces);
        const auto pass = std::ranges::find_if(run.timeline.spans, [&](const Span& span) {
            return span.rank == wait.rank && span.action == wait.pass;
        });
        ASSERT_NE(pass, run.timeline.spans.end());
        EXPECT_GE(wait.begin_ns, pass->begin_ns - kResolutionNs);
        EXPECT_LE(wait.end_ns, pass->end_ns + kResolutionNs);
    }
    EXPECT_EQ(critical_path(run.timeline, run.programs).total_ns,
              summarize(run.timeline, run.programs).makespan_ns);
}

TEST_P(CudaStep, TimelineMakesATraceAndExplainsWhatWasWaitedFor) {
    const Executed run = execute(GetParam());
    const Trace trace = written_and_read_back(run.timeline, run.programs, "executed on CUDA");
    ASSERT_NO_FATAL_FAILURE(expect_sound_trace(trace, run.timeline, run.programs));
    const TimelineSummary summary = summarize(run.timeline, run.programs);
    EXPECT_EQ(critical_path(run.timeline, run.programs).total_ns, summary.makespan_ns);
    for (const RankSummary& rank : summary.ranks) {
        EXPECT_GT(rank.busy_ns, 0);
        EXPECT_GE(rank.bubble, 0);
        EXPECT_LT(rank.bubble, 1);
    }
}

INSTANTIATE_TEST_SUITE_P(, CudaStep, ::testing::Values(CudaTransport::copies, CudaTransport::nccl),
                         name_of);

}  // namespace
}  // namespace vocabpipe::testing
