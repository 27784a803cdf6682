// SPDX-License-Identifier: Apache-2.0
// Executed and simulated timelines go through the same writer and show the same actions.
#include "src/schedule/slice_causes.hpp"
#include "tests/schedule/trace_reader.hpp"
#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/explain.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

namespace vocabpipe::testing {
namespace {

struct Executed {
    Timeline timeline;
    std::vector<Program> programs;
    TableCosts costs;
};

Executed execute(const std::string& family, VocabMode mode, int p, int m) {
    ModelConfig config;
    config.num_layers = p;
    config.hidden_size = 16;
    config.ffn_hidden_size = 32;
    config.num_attention_heads = 2;
    config.seq_length = config.max_position_embeddings = 6;
    config.vocab_size = 53;
    config.tied = false;
    const Schedule schedule = make_schedule(
        family, {.ranks = p, .microbatches = m, .vocab_mode = mode, .vocab_size = 53});
    const ModelPartition partition = even_partition(config, schedule, 2);
    const StepSizes sizes = step_sizes(config, partition, schedule);
    const Batch batch = random_batch(config, m, 2, 1);
    Executed result;
    result.costs = TableCosts::uniform(p, p, 1000, 2000, 500);
    result.costs.latency_ns = 10;
    result.programs = lower(schedule, sizes, result.costs);
    std::mutex mutex;
    World world = World::threads(p, {.timeout_seconds = 30});
    world.run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        ModelRank model(config, partition, schedule, communicator.rank(), *device);
        Executor executor(communicator, *device, model.modules(), sizes);
        model.initialise(executor.context(), 7);
        executor.load(result.programs);
        const std::vector<Microbatch> microbatches = batch.microbatches();
        for (int step = 0; step < 2; ++step) {
            executor.run_step(microbatches);
        }
        Timeline all = executor.gather_timeline();
        const std::lock_guard lock(mutex);
        result.timeline = std::move(all);
    });
    return result;
}

class ExecutedTrace : public ::testing::TestWithParam<VocabMode> {};

TEST_P(ExecutedTrace, ShowsTheActionsOfTheSimulatedOne) {
    for (const char* family : {"1f1b", "gpipe"}) {
        SCOPED_TRACE(family);
        const Executed run = execute(family, GetParam(), 4, 20);
        const Trace executed = written_and_read_back(run.timeline, run.programs, "executed");
        ASSERT_NO_FATAL_FAILURE(expect_sound_trace(executed, run.timeline, run.programs));

        const Simulation simulation = simulate(run.programs, run.costs);
        const Trace simulated =
            written_and_read_back(simulation.timeline, run.programs, "simulated");
        const auto shown = [](const Trace& trace) {
            std::multiset<std::tuple<int, std::string, std::string, uint32_t>> all;
            for (const Trace::Slice& slice : trace.slices) {
                all.emplace(slice.rank, slice.category, slice.name, slice.order);
            }
            return all;
        };
        EXPECT_EQ(shown(executed), shown(simulated));
    }
}

// The executor keeps the rules by which the simulator reckons, in clock time.
TEST_P(ExecutedTrace, KeepsEdgesAndTheOrderOfPasses) {
    const Executed run = execute("1f1b", GetParam(), 4, 9);
    std::vector<std::vector<const Span*>> of(run.programs.size());
    for (size_t rank = 0; rank < of.size(); ++rank) {
        of[rank].resize(run.programs[rank].actions.size(), nullptr);
    }
    for (const Span& span : run.timeline.spans) {
        ASSERT_EQ(of[span.rank][span.action], nullptr);
        of[span.rank][span.action] = &span;
        EXPECT_LE(span.begin_ns, span.end_ns);
    }
    for (const Program& program : run.programs) {
        const auto& spans = of[static_cast<size_t>(program.rank)];
        const Span* previous = nullptr;
        for (size_t i = 0; i < spans.size(); ++i) {
            ASSERT_NE(spans[i], nullptr);
            if (program.actions[i].lane != Lane::compute) continue;
            if (previous != nullptr) {
                EXPECT_GE(spans[i]->begin_ns, previous->end_ns);
            }
            previous = spans[i];
        }
        for (const Edge& edge : program.edges) {
            EXPECT_GE(spans[edge.after]->begin_ns, spans[edge.before]->end_ns);
        }
    }
}

// The page follows causes from the end of the step to its begin, whatever held a rank up.
TEST_P(ExecutedTrace, HasCausesThatLeadBackToTheBeginOfTheStep) {
    for (const int p : {2, 4}) {
        const Executed run = execute("1f1b", GetParam(), p, 8);
        const RecordedRun recorded = record(run.timeline, run.programs, "executed");
        const std::vector<SliceCause> causes = slice_causes(recorded);
        const std::vector<PathPiece> path = critical_path(recorded, causes);
        ASSERT_FALSE(path.empty());
        // No share of the step: ranks of a busy machine do not begin it together.
        const uint32_t first = path.back().slice;
        EXPECT_EQ(causes[first].slice, RecordedRun::kNone);
        for (const RecordedRun::Slice& other : recorded.slices) {
            if (other.rank != recorded.slices[first].rank || other.lane != Lane::compute) continue;
            EXPECT_GE(other.begin_ns, recorded.slices[first].begin_ns);
        }
    }
}

// Why a rank waited can be asked of a real run as well.
TEST_P(ExecutedTrace, HasACriticalPathAndExplainsIdleRanks) {
    const Executed run = execute("1f1b", GetParam(), 3, 6);
    const TimelineSummary summary = summarize(run.timeline, run.programs);
    const CriticalPath path = critical_path(run.timeline, run.programs);
    int64_t at = 0;
    for (const PathSegment& segment : path.segments) {
        ASSERT_EQ(segment.begin_ns, at);
        ASSERT_LT(segment.begin_ns, segment.end_ns);
        at = segment.end_ns;
    }
    EXPECT_EQ(at, summary.makespan_ns);
    EXPECT_EQ(path.total_ns, summary.makespan_ns);
    const bool computes = std::any_of(path.shares.begin(), path.shares.end(), [](const auto& s) {
        return s.cause == Cause::compute && s.ns > 0;
    });
    EXPECT_TRUE(computes) << to_text(path);
    for (int rank = 0; rank < 3; ++rank) {
        for (int part = 0; part <= 40; ++part) {
            const Explanation explanation =
                explain(run.timeline, run.programs, rank, summary.makespan_ns * part / 40);
            EXPECT_FALSE(to_text(explanation).empty());
            if (explanation.state != Explanation::State::idle) continue;
            int64_t end = explanation.end_ns;
            for (const ChainLink& link : explanation.chain) {
                EXPECT_EQ(link.end_ns, end);
                end = link.begin_ns;
            }
            EXPECT_LE(end, explanation.begin_ns);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, ExecutedTrace,
                         ::testing::Values(VocabMode::none, VocabMode::interlaced,
                                           VocabMode::one_barrier, VocabMode::two_barriers),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace vocabpipe::testing
